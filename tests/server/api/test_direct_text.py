"""Deltas that go on are written as they come, and all others by the generators, to the same bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from turnout.core.engine.client import EngineClient, TakesAtOnce
from turnout.core.types.messages import Delta
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.models.hub.resolve import resolve_model
from turnout.server.api.direct_text import DirectText
from turnout.server.api.respond import _events
from turnout.server.engine.streams.request_stream import RequestStream
from turnout.server.generation.generation import Generation
from turnout.server.http.connections.open_response import OpenResponse
from turnout.server.http.pieces import PieceThread
from turnout.server.metrics.request_metrics import RequestMetrics
from turnout.server.renderers.renderer import Renderer
from turnout.text.choice_text import TextDelta
from turnout.text.tokenizer import Tokenizer, load_tokenizer


class Lines(Renderer):
    """A line for each event."""

    def whole(self, choices: Sequence[TextDelta], generation: Generation) -> msgspec.Struct:
        raise NotImplementedError

    def opening(self, choice: int, generation: Generation) -> list[bytes]:
        return [f"open {choice}\n".encode()]

    def delta(self, delta: TextDelta, generation: Generation) -> bytes:
        return f"{delta.index}: {delta.text} {delta.finish_reason or ''}\n".encode()

    def closing(self, generation: Generation) -> bytes:
        return b"closing\n"

    def error(self, error: Exception) -> bytes:
        return f"error {error}\n".encode()

    def end(self) -> bytes:
        return b"end\n"

    async def keep(self, generation: Generation) -> None:
        pass


@dataclass
class Client:
    """Gives the deltas that a test delivers."""

    stream: RequestStream | None = None
    aborted: list[int | None] = field(default_factory=list)

    async def submit(
        self, request: RequestSpec, at_once: TakesAtOnce | None = None
    ) -> AsyncGenerator[Delta, None]:
        self.stream = RequestStream(request, at_once=at_once)
        while (delta := await self.stream.next()) is not None:
            yield delta

    def abort(self, request_id: str, index: int | None = None) -> None:
        assert self.stream is not None
        self.aborted.append(index)
        self.stream.abort(index)


@dataclass
class Response:
    """Has what a client was sent, and by whom."""

    direct: int = 0
    body: bytes = b""
    writable: bool = True

    def write(self, body: bytes) -> None:
        self.direct += 1
        self.body += body


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer(resolve_model("turnout-tiny"))


def served(
    tokenizer: Tokenizer,
    deltas: list[Delta],
    before: Callable[[int, Response], None] = lambda number, response: None,
    **params: Any,
) -> tuple[Response, Client]:
    """What a client gets of deltas, each of which comes when those before have been read."""
    client, response = Client(), Response()
    spec = RequestSpec(id="a", prompt=[1], params=SamplingParams(max_tokens=99, **params), seed=0)
    metrics = RequestMetrics("model", 100)
    generation = Generation(cast(EngineClient, client), tokenizer, metrics, [spec], spec.params.n)
    renderer = Lines()
    direct = DirectText(generation, renderer)

    async def read() -> None:
        texts = generation.deltas()
        first = await anext(texts, None)
        direct.begin(cast(OpenResponse, response))
        async for piece in _events(generation, renderer, first, texts, PieceThread(), direct):
            response.body += piece

    async def main() -> None:
        reading = asyncio.create_task(read())
        await settled()
        assert client.stream is not None
        for number, delta in enumerate(deltas):
            before(number, response)
            client.stream.deliver(delta)
            await settled()
        await asyncio.wait_for(reading, 10)

    asyncio.run(main())
    return response, client


def deltas_of(tokens: list[int], choices: int = 1) -> list[Delta]:
    return [
        Delta(request_id="a", index=index, tokens=[token], finish_reason=reason)
        for token, reason in zip(tokens, [None] * (len(tokens) - 1) + ["length"], strict=True)
        for index in range(choices)
    ]


@pytest.mark.parametrize("choices", [1, 2])
def test_direct_and_queued_are_the_same(tokenizer: Tokenizer, choices: int) -> None:
    tokens = tokenizer.encode("def 你好(n):\n    return n")

    def slow(number: int, response: Response) -> None:
        response.writable = False

    direct, _ = served(tokenizer, deltas_of(tokens, choices), n=choices)
    queued, _ = served(tokenizer, deltas_of(tokens, choices), slow, n=choices)
    assert direct.body == queued.body
    assert direct.direct > 5 * choices
    assert queued.direct == 0


def test_a_client_that_is_slow_for_a_while_gets_all_in_order(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode("one two three four five six seven eight nine ten")

    def sometimes(number: int, response: Response) -> None:
        response.writable = number % 3 != 0

    mixed, _ = served(tokenizer, deltas_of(tokens), sometimes)
    assert mixed.body == served(tokenizer, deltas_of(tokens))[0].body
    assert 0 < mixed.direct < len(tokens)


def test_a_stream_begins_with_its_first_token(tokenizer: Tokenizer) -> None:
    """Though the token is part of a character, whose text waits for its rest."""
    tokens = tokenizer.encode("你好")
    assert len(tokens) > 2
    sent: list[bytes] = []
    response, _ = served(tokenizer, deltas_of(tokens), lambda number, response: sent.append(response.body))
    assert sent[1] == b"open 0\n"
    assert response.body.startswith("open 0\n0: 你 \n".encode())


def test_a_stop_string_ends_the_choice(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode("one two three four")
    response, client = served(tokenizer, deltas_of(tokens), stop=(" three",))
    lines = response.body.decode().splitlines()
    assert "".join(line[3:-1] for line in lines if line.startswith("0: ")).startswith("one two")
    assert lines[-3].endswith("stop")
    assert lines[-2:] == ["closing", "end"]
    assert client.aborted == [0]


def test_an_error_of_reading_ends_that_stream_alone(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = tokenizer.encode("one two three four")

    def fails_later(number: int, response: Response) -> None:
        if number == 2:
            monkeypatch.setattr(Generation, "_feed", _fails)

    response, _ = served(tokenizer, deltas_of(tokens), fails_later)
    assert response.body.decode().splitlines()[-2:] == ["error broken", "end"]


def _fails(*_: object) -> TextDelta:
    raise ValueError("broken")


def test_a_response_is_written_to_between_its_beginning_and_its_end() -> None:
    written: list[bytes] = []

    class Cycle:
        chunked_encoding: bool | None = None
        disconnected = response_complete = False

        class flow:
            write_paused = False

        class transport:
            write_at_once = written.append

    cycle = Cycle()
    response = OpenResponse(cast(RequestResponseCycle, cycle))
    assert not response.writable
    cycle.chunked_encoding = True
    assert response.writable
    response.write(b"")  # would be the end of the response
    response.write(b"0123456789abcdef")
    assert written == [b"10\r\n0123456789abcdef\r\n"]
    for name in ("disconnected", "response_complete"):
        setattr(cycle, name, True)
        assert not response.writable
        setattr(cycle, name, False)
    cycle.flow.write_paused = True
    assert not response.writable
