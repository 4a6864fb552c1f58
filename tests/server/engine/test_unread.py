"""What is generated and not read is bounded over all clients: the one that leaves most unread is given up."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from turnout.core import limits
from turnout.core.errors import Overloaded
from turnout.core.types.messages import Abort, Command, Delta
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.server.engine.client import ProcessClient
from turnout.server.engine.unread import delta_size


class Client(ProcessClient):
    """Without a process: notes what it would send."""

    def __init__(self) -> None:
        super().__init__()
        self.kill()
        self.sent: list[Command] = []

    def _send(self, command: Command) -> None:
        self.sent.append(command)

    def hear(self, name: str, tokens: int = 1) -> None:
        self._on_event(Delta(request_id=name, tokens=[7] * tokens))


def spec(name: str) -> RequestSpec:
    return RequestSpec(id=name, prompt=[1], params=SamplingParams(max_tokens=10**6), seed=0, arrival=0.0)


def test_the_stream_that_leaves_most_unread_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "UNREAD", replace(limits.UNREAD, most=5000))

    async def main() -> None:
        client = Client()
        slow, other = client.streams.add(spec("slow")), client.streams.add(spec("other"))
        client.hear("other")
        while not client.sent:
            client.hear("slow", tokens=2)
        assert client.sent == [Abort("slow")] and slow.over and not other.over
        with pytest.raises(Overloaded, match="reads too slowly"):
            await slow.next()
        client.hear("slow")  # was on its way
        for _ in range(1000):  # what is read is not counted any more
            assert await other.next() is not None
            client.hear("other")
        assert client.streams.unread.size == delta_size(Delta(request_id="other", tokens=[7]))
        client.streams.remove("other")
        client.streams.remove("slow")
        assert client.streams.unread.size == 0

    asyncio.run(main())
