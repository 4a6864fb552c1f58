"""A prompt's log-probabilities come in parts, and are one list again for the client."""

from __future__ import annotations

import asyncio
from itertools import chain

import msgspec
import pytest

from turnout.core.types.logprobs import TokenLogprobs
from turnout.core.types.messages import Delta, Event, Failed, PromptScores, Reply, Stats
from turnout.core.types.messages.reading import event_reader
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.server.engine.parts import PART, in_parts
from turnout.server.engine.streams.request_stream import RequestStream

TOP = 20
STATS = Stats(
    steps=1,
    running=1,
    waiting=0,
    kv_capacity=1,
    kv_free=1,
    preemptions=0,
    swap_outs=0,
    computed_tokens=1,
    output_tokens=1,
    policy_faults=0,
)


def scores(length: int) -> list[TokenLogprobs]:
    return [TokenLogprobs(i, -1.0, [(t, -2.0) for t in range(TOP)]) for i in range(length)]


def first_delta(length: int) -> Delta:
    return Delta(request_id="a", tokens=[7], prompt_logprobs=scores(length))


def stream(*messages: list[Event]) -> RequestStream:
    spec = RequestSpec(id="a", prompt=[1], params=SamplingParams(max_tokens=9, prompt_logprobs=TOP), seed=0)
    found = RequestStream(spec)
    for event in chain(*messages):
        if isinstance(event, PromptScores):
            found.add_prompt_scores(event.scores)
        elif isinstance(event, Delta) and event.request_id == "a":
            found.deliver(event)
    return found


@pytest.mark.parametrize("length", [0, 1, 300, 389, 390, 391, 2000])
def test_the_parts_are_short_and_complete(length: int) -> None:
    other = Delta(request_id="b", tokens=[8])
    sent = list(in_parts([other, first_delta(length), STATS]))
    assert sent[-1][0] == other and sent[-1][2] == STATS
    for message in sent:
        for event in message:
            part = (
                event.scores if isinstance(event, PromptScores) else getattr(event, "prompt_logprobs", None)
            )
            assert len(part or ()) * (TOP + 1) <= PART
    decoded = [msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=list[Event]) for message in sent]
    assert asyncio.run(stream(*decoded).next()) == first_delta(length)


def test_parts_of_an_engine_that_died_are_forgotten() -> None:
    """The next one sends all of them."""
    sent = list(in_parts([first_delta(2000)]))
    interrupted = stream(*sent[:2])
    interrupted.interrupt()
    for event in chain(*sent):
        if isinstance(event, PromptScores):
            interrupted.add_prompt_scores(event.scores)
        else:
            assert isinstance(event, Delta)
            interrupted.deliver(event)
    assert asyncio.run(interrupted.next()) == first_delta(2000)


def test_an_event_that_cannot_be_read_costs_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """Every event of the message was lost: requests of other clients lacked tokens, or never ended."""
    mine, other = Delta(request_id="a", tokens=b"\1"), Delta(request_id="b", tokens=[2])  # type: ignore[arg-type]
    wrong = msgspec.structs.replace(STATS, kv_free="all")  # type: ignore[arg-type]
    reply = Reply(id="c", value=wrong)  # type: ignore[arg-type]
    message = msgspec.msgpack.encode([mine, wrong, reply, {"type": "Ready"}, 7, other])
    *instead, ready, last = event_reader().read(message)
    assert last == other
    assert isinstance(ready, Failed) and ready.final
    delta, answer = instead
    assert isinstance(delta, Delta) and (delta.request_id, delta.error_kind) == ("a", "internal")
    assert "Expected `array`, got `bytes`" in delta.error
    assert isinstance(answer, Reply) and (answer.id, answer.error_kind) == ("c", "internal")
    assert "a part of a message cannot be read" in caplog.text


@pytest.mark.parametrize("message", [b"", b"\xc1", msgspec.msgpack.encode(5), b"\x91" * 100_000])
def test_a_message_that_is_none_is_left_out(message: bytes) -> None:
    assert event_reader().read(message) == []
