"""Tokens that soon follow one another go to the server together, and nothing else waits."""

from __future__ import annotations

import random

import pytest

from turnout.core.types.logprobs import TokenLogprobs
from turnout.core.types.messages import Delta, Event, Reply
from turnout.core.types.request import Timing
from turnout.server.engine.event_interval import EventInterval

BEGUN = (0.0, 0.1)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Steps:
    """Passes the deltas of steps, each of which takes 4 ms, through an interval of 10 ms."""

    def __init__(self, seconds: float = 0.01) -> None:
        self.clock = Clock()
        self.interval = EventInterval(self.clock)
        self.interval.seconds = seconds

    def step(self, *events: Event, busy: bool = True) -> list[Event]:
        self.clock.now += 0.004
        return self.interval.passed(list(events), busy=busy)


def token(number: int, id: str = "a", index: int = 0, **told: object) -> Delta:
    return Delta(request_id=id, index=index, tokens=[number], **told)  # type: ignore[arg-type]


def test_tokens_wait_for_the_interval() -> None:
    steps = Steps()
    assert steps.step(token(1, begun=BEGUN)) == [token(1, begun=BEGUN)]
    sent = [steps.step(token(number)) for number in range(2, 10)]
    assert [[delta.tokens for delta in step if isinstance(delta, Delta)] for step in sent] == [
        [[2]],  # nothing like it had been sent
        [],
        [],
        [[3, 4, 5]],
        [],
        [],
        [[6, 7, 8]],
        [],
    ]


def test_nothing_is_held_of_a_request_that_another_engine_lost() -> None:
    """Where this engine dies, too, it counts what the request has survived."""
    steps = Steps()
    steps.step(token(1, begun=BEGUN), token(1, "b", begun=BEGUN))
    steps.interval.hold_nothing_of("b")
    steps.step(token(2), token(2, "b"))
    assert steps.step(token(3), token(3, "b")) == [token(3, "b")]
    steps.step(token(4, finish_reason="length"), token(4, "b", finish_reason="length"), busy=False)
    steps.step(token(1, "b", begun=BEGUN))
    steps.step(token(2, "b"))
    assert steps.step(token(3, "b")) == [], "another request of the name"


def test_all_choices_of_a_request_begin_at_once() -> None:
    """Where the engine died between the first and the others, those never came: the client waited on."""
    steps = Steps()
    steps.step(token(9, "b", begun=BEGUN))
    steps.step(token(9, "b"))
    first = [token(1, begun=BEGUN), token(2, index=1), token(3, index=2)]
    assert steps.step(*first, token(9, "b")) == first
    assert steps.step(token(4), token(5, index=1)) == []


def test_slow_tokens_do_not_wait() -> None:
    steps = Steps(0.004)
    for number in range(10):
        assert steps.step(token(number)) == [token(number)]


def test_without_an_interval_all_goes_on_as_it_comes() -> None:
    steps = Steps(0)
    for number in range(10):
        assert steps.step(token(number)) == [token(number)]


def test_the_last_token_takes_along_what_waits() -> None:
    steps = Steps()
    steps.step(token(1))
    assert steps.step(token(2)) == steps.step(token(3)) == []
    timing = Timing(arrival=0.0)
    last = token(4, finish_reason="length", cached_tokens=3, timing=timing)
    assert steps.step(last) == [
        Delta(request_id="a", tokens=[2, 3, 4], finish_reason="length", cached_tokens=3, timing=timing)
    ]
    assert steps.step() == []


def test_an_idle_engine_holds_nothing() -> None:
    steps = Steps()
    steps.step(token(1))
    assert steps.step(token(2)) == []
    assert steps.step(token(3), busy=False) == [Delta(request_id="a", tokens=[2, 3])]


def test_what_waits_goes_though_no_more_comes() -> None:
    """The request waits for memory while others are served."""
    steps = Steps()
    steps.step(token(1))
    assert steps.step(token(2)) == []
    assert steps.step() == []
    assert steps.step() == [token(2)]


def test_an_error_comes_after_all_tokens_of_its_request() -> None:
    steps = Steps()
    steps.step(token(1))
    steps.step(token(2), token(3, index=1), token(9, "b"))
    error = Delta(request_id="a", finish_reason="error", error="broken", error_kind="internal")
    assert steps.step(error) == [token(2), token(3, index=1), error]
    assert steps.step() == [token(9, "b")]


def test_other_events_do_not_wait() -> None:
    steps = Steps()
    steps.step(token(1))
    reply = Reply(id="r")
    assert steps.step(token(2), reply) == [reply]


def test_log_probabilities_stay_with_their_tokens() -> None:
    steps = Steps()
    scores = [TokenLogprobs(number, -1.0, []) for number in range(4)]
    steps.step(token(0, logprobs=scores[:1]))
    sent = [steps.step(token(number, logprobs=scores[number : number + 1])) for number in range(1, 4)]
    assert sent == [[], [], [Delta(request_id="a", tokens=[1, 2, 3], logprobs=scores[1:])]]


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_lost_or_changes_places(seed: int) -> None:
    """Whatever comes of some choices, each has the same tokens in the same order, and its end last."""
    rng = random.Random(seed)
    steps = Steps(rng.choice([0.002, 0.01, 0.05]))
    choices = [(id, index) for id in "abcd" for index in range(2)]
    left = {choice: rng.randrange(1, 30) for choice in choices}
    given: dict[tuple[str, int], list[int]] = {choice: [] for choice in choices}
    found: dict[tuple[str, int], list[int]] = {choice: [] for choice in choices}
    ended: set[tuple[str, int]] = set()
    while any(left.values()):
        events: list[Event] = []
        for choice in rng.sample(choices, rng.randrange(len(choices))):
            if not left[choice]:
                continue
            left[choice] -= 1
            tokens = [rng.randrange(1000) for _ in range(rng.randrange(1, 4))]
            given[choice] += tokens
            id, index = choice
            reason = None if left[choice] else "stop"
            events.append(Delta(request_id=id, index=index, tokens=tokens, finish_reason=reason))
        for event in steps.step(*events, busy=any(left.values())):
            assert isinstance(event, Delta)
            choice = event.request_id, event.index
            assert choice not in ended
            found[choice] += event.tokens
            if event.finish_reason:
                ended.add(choice)
    assert found == given
    assert ended == set(choices)
