"""What a strategy decides is checked before it is applied: a client gets all its choices, and no more."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import cycle
from typing import Any

import msgspec
import numpy as np
import pytest
from toy import ToyDecoding, argmax, drive, expected, toy_engine, toy_kv, toy_request

from turnout.core.errors import Interrupted
from turnout.core.types.decision import Choice, Completion, Continuation
from turnout.core.types.logprobs import TokenLogprobs
from turnout.core.types.request import Request, RequestSpec, Resumption
from turnout.plugins.schedulers.fcfs import Fcfs

PROMPT = [1, 2, 3]
Decide = Callable[[Request, list[Continuation]], Iterable[Any]]
"""From a request and one continuation for each of its sequences to what the strategy decides."""


def strategy(decide: Decide, *, streams: bool = True, width: int | None = None) -> ToyDecoding:
    class Theirs(ToyDecoding):
        name = "theirs"

        def width(self, params: Any) -> int:
            return params.n if width is None else width

        def choose(self, request: Request, rows: Any) -> Any:
            return decide(request, [Continuation(s, [argmax(r[-1])]) for s, r in rows.items()])

    Theirs.streams = streams
    return Theirs()


def error_of(theirs: ToyDecoding, n: int = 1, **changed: Any) -> str:
    """What their request ends with; others get the tokens that they would have got."""
    engine = toy_engine(Fcfs(), toy_kv(64, 4), slots=12, decodings=[theirs])
    other = toy_request("other", PROMPT, "parallel", 10, n=2)
    spec = toy_request("r", PROMPT, "theirs", 10, n=n)
    spec = msgspec.structs.replace(spec, params=msgspec.structs.replace(spec.params, **changed))
    outcome = drive(engine, [(0, spec), (0, other)], max_steps=200, errors=True)
    assert outcome.outputs("other") == expected(other)
    assert engine.stats().kv_free == engine.stats().kv_capacity
    assert set(outcome.errors) == {"r"}
    assert "decoding strategy Theirs of test_decision_checks: decide failed: " in outcome.errors["r"]
    return outcome.errors["r"]


def late(request: Request, each: list[Continuation]) -> list[Continuation]:
    """Forks only in the third decision."""
    return each * 2 if request.output_tokens == 2 and request.forks == 0 else each


def dropping(request: Request, each: list[Continuation]) -> list[Continuation]:
    return each * request.params.n if request.forks == 0 else each[:1]


def doubling(request: Request, each: list[Continuation]) -> list[Continuation]:
    return each * 2


STREAMING: dict[str, tuple[Decide, str]] = {
    "never forks": (lambda request, each: each, "with 1 of its n=2 choices; a strategy that streams forks"),
    "forks late": (late, "with 1 of its n=2 choices"),
    "forks too often": (lambda request, each: each * 3, "with 3 of its n=2 choices"),
    "drops a choice": (dropping, "continued 1 of the 2 live choices"),
    "forks again": (doubling, "with 4 sequences; a strategy that streams continues each once"),
    "gives nothing": (lambda request, each: [], "gave no continuation for"),
}


@pytest.mark.parametrize("what", STREAMING)
def test_a_strategy_that_streams_has_all_choices_from_its_first_decision_on(what: str) -> None:
    """A client waited for ever for a choice that never came."""
    decide, message = STREAMING[what]
    assert message in error_of(strategy(decide), n=2)


def test_decisions_that_never_end_are_a_fault() -> None:
    """The engine hung, and its memory grew."""
    theirs = strategy(doubling)
    theirs.decide = lambda requests, logits: cycle([Completion(requests[0], [])])  # type: ignore[method-assign]
    assert "gave more than 2 answers; expected no more than it was asked for" in error_of(theirs)


def test_one_that_does_not_stream_ends_with_n_choices() -> None:
    def alone(request: Request, each: list[Continuation]) -> list[Continuation]:
        return each[:1]

    assert "with 1 of n=2 choices" in error_of(strategy(alone, streams=False), n=2)
    assert "`width` said at most 2" in error_of(strategy(doubling, streams=False), n=2)


def test_choices_of_one_that_does_not_stream_have_the_numbers_of_choices() -> None:
    """A client that asked for two got a choice numbered 4."""

    def reordering(request: Request, each: list[Continuation]) -> list[Continuation]:
        return each * 2 if request.forks == 0 else [each[-1]] * len(each)

    engine = toy_engine(Fcfs(), toy_kv(64, 4), decodings=[strategy(reordering, streams=False)])
    outcome = drive(engine, [(0, toy_request("r", PROMPT, "theirs", 6, n=2))])
    assert sorted(outcome.finished["r"]) == [0, 1]


def choice(**changed: Any) -> Choice:
    return Choice(tokens=[1, 2], logprob=0.0, finish_reason="length")._replace(**changed)


WRONG: dict[str, tuple[Choice, str]] = {
    "too long": (choice(tokens=[1] * 3009), "a choice of 3,009 tokens; max_tokens is 10"),
    "no tokens": (choice(tokens=[]), "with a choice without tokens"),
    "outside the vocabulary": (choice(tokens=[1, 7]), "gave token 7, which is outside the vocabulary"),
    "another reason": (choice(finish_reason="tired"), "with finish_reason 'tired'"),
    "a token that is none": (choice(stop_token="a"), "with the stop token 'a'"),
    "no number": (choice(logprob=np.float32), "the log-probability or score"),
    "True for a number": (choice(logprob=True), "that cannot be sent: Expected `float`, got `bool`"),
    "a huge number": (choice(score=10**30), "log-probabilities or scores that cannot be sent"),
    "bytes for tokens": (choice(tokens=b"\1\2"), "gave tokens as bytes; expected a list"),
    "details for others": (choice(details=[None]), "1 log-probabilities for 2 tokens"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_choice_that_a_request_cannot_end_with_is_refused(what: str) -> None:
    """3,009 tokens came where 10 were asked for."""
    wrong, message = WRONG[what]
    assert message in error_of(strategy(lambda request, each: [Completion(request, [wrong])]))


@pytest.mark.parametrize("token", [True, 2.0, "2", np.int64(2), None])
def test_a_token_is_an_int(token: Any) -> None:
    """Others look like one, and end the engine where they are sent."""
    theirs = strategy(lambda request, each: [each[0]._replace(tokens=[token])])
    assert f"gave token {token!r}, which is outside" in error_of(theirs)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"tokens": b"\2"}, "gave tokens as bytes; expected a list"),
        ({"details": [TokenLogprobs("2", 0.0, [])]}, "cannot be sent: Expected `int`, got `str`"),  # type: ignore[arg-type]
        ({"details": [TokenLogprobs(2, 0.0, [(2, {})])]}, "cannot be sent: Expected `float`, got `object`"),  # type: ignore[list-item]
    ],
)
def test_what_the_server_cannot_read_is_refused(wrong: dict[str, Any], message: str) -> None:
    """It could be encoded, and the server lost the deltas of all requests in the step with it."""
    assert message in error_of(strategy(lambda request, each: [each[0]._replace(**wrong)]))


def test_a_request_stops_after_min_tokens() -> None:
    def stopping(request: Request, each: list[Continuation]) -> list[Continuation]:
        return [each[0]._replace(tokens=[5])]

    message = error_of(strategy(stopping), min_tokens=3, stop_token_ids=(5,))
    assert "after 0 tokens; min_tokens is 3" in message


def test_a_request_that_makes_no_progress_ends() -> None:
    """Its strategy takes back what it said: it would go on for ever."""

    def taking_back(request: Request, each: list[Continuation]) -> list[Continuation]:
        sequence = each[0].parent
        if len(sequence.tokens) > len(request.prompt):
            del sequence.tokens[-1]
            sequence.computed = min(sequence.computed, len(sequence.tokens))
        return each

    assert "more often than it may have tokens" in error_of(strategy(taking_back))


def resumed(tokens: list[int]) -> RequestSpec:
    spec = toy_request("r", PROMPT, "theirs", 10)
    resume = Resumption(choices=[(0, tokens)] if tokens else [])
    return RequestSpec(id="r", prompt=PROMPT, params=spec.params, seed=0, resume=resume)


def test_what_cannot_resume_ends_and_is_not_changed_silently() -> None:
    theirs = strategy(lambda request, each: each)
    theirs.resumes = False  # type: ignore[misc]
    engine = toy_engine(Fcfs(), toy_kv(64, 4), decodings=[theirs])
    with pytest.raises(Interrupted, match="Theirs of test_decision_checks cannot go on from"):
        engine.add(resumed([4]))
    engine.add(resumed([]))  # no client has a token of it
    assert engine.busy
