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
from turnout.plugins.routers.least_loaded import LeastLoaded
from turnout.server.engine.client import ProcessClient
from turnout.server.fleet.fleet import Fleet


class Client(ProcessClient):
    """Without a process: notes what it would send."""

    def __init__(self) -> None:
        super().__init__()
        self.kill()
        self._most_requests = 9
        self.sent: list[Command] = []

    def _send(self, command: Command) -> None:
        self.sent.append(command)

    def hear(self, name: str, tokens: int = 1) -> None:
        self._on_event(Delta(request_id=name, tokens=[7] * tokens))


def spec(name: str) -> RequestSpec:
    return RequestSpec(id=name, prompt=[1], params=SamplingParams(max_tokens=10**6), seed=0, arrival=0.0)


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_stream_that_leaves_most_unread_ends(monkeypatch: pytest.MonkeyPatch, replicas: int) -> None:
    monkeypatch.setattr(limits, "UNREAD", replace(limits.UNREAD, most=5000))

    async def main() -> None:
        fleet = Fleet(lambda order: Client(), replicas, LeastLoaded())
        clients = [replica.client for replica in fleet.replicas]
        for replica in fleet.replicas:
            replica.started = True
        slow, other = fleet.submit(spec("slow")), fleet.submit(spec("other"))
        its, the_others = clients[0], clients[-1]
        assert isinstance(its, Client) and isinstance(the_others, Client)
        first = [asyncio.create_task(anext(stream)) for stream in (slow, other)]
        await asyncio.sleep(0)
        its.hear("slow")
        the_others.hear("other")
        await asyncio.gather(*first)

        def given_up() -> list[Command]:
            return [command for command in its.sent if isinstance(command, Abort)]

        the_others.hear("other")
        while fleet.unread < 4500:
            its.hear("slow", tokens=2)
        assert not given_up()
        while not given_up():
            the_others.hear("other")
        assert given_up() == [Abort("slow")] and Abort("other") not in the_others.sent
        with pytest.raises(Overloaded, match="reads too slowly"):
            await anext(slow)
        its.hear("slow")  # was on its way
        for _ in range(1000):  # what is read is not counted any more
            await anext(other)
            the_others.hear("other")
        assert 0 < fleet.unread <= 5000
        await other.aclose()
        assert fleet.unread == 0

    asyncio.run(main())
