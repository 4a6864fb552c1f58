"""How far to draft is worked out from what was measured; here on machines whose costs are known."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from turnout.core.engine.observers import Observers
from turnout.core.interfaces.observers import StepRecord, WatchingHook
from turnout.core.types.request import Request, RequestSpec
from turnout.core.types.request import Sequence as TokenSequence
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.decoding.greedy import Greedy
from turnout.plugins.decoding.speculation import step_times
from turnout.plugins.decoding.speculation.acceptance import AcceptanceRates, expected_speedups
from turnout.plugins.decoding.speculation.draft_length import DraftLengthController
from turnout.plugins.decoding.speculation.step_times import StepTimes

LIMIT = 512


def sequences(count: int, room: int = 400) -> list[TokenSequence]:
    params = SamplingParams(max_tokens=room)
    made = []
    for seed in range(count):
        spec = RequestSpec(id=str(seed), prompt=[1] * 100, params=params, seed=seed)
        made.append(Request(spec, Greedy(), 0.0, 100 + room, frozenset()).live[0])
    return made


@dataclass
class Machine:
    """Takes `step(tokens)` seconds for a step and `forward(sequences)` for a forward of the draft."""

    step: Callable[[int], float]
    forward: Callable[[int], float]
    acceptance: float = 0.8
    hidden: float = 0.0
    """Seconds that drafts take beside all that is worked out, such as verifying them."""
    most: int = 5
    now: float = 0.0
    observers: Observers = field(default_factory=Observers)
    max_batched_tokens: int = LIMIT

    def __post_init__(self) -> None:
        self.rng = random.Random(0)
        self.lengths = DraftLengthController(self.most, adaptive=True)
        self.lengths.start(self, cost=0.1)  # type: ignore[arg-type]
        self.backlogs: dict[TokenSequence, int] = {}
        self.caught_up = 0

    def clock(self) -> float:
        return self.now

    def watch_steps(self, name: str, hook: Any) -> None:
        self.observers.watch_steps(WatchingHook(name, hook))

    def prefill(self, tokens: int) -> None:
        self.finish(tokens, rows=1)

    def decode(self, batch: list[TokenSequence], others: int = 0) -> list[int]:
        """One step; returns the lengths that were chosen for it."""
        lengths = self.lengths.draft_lengths(batch, lambda sequence: self.backlogs.get(sequence, 0))
        drafted = [sequence for sequence, length in zip(batch, lengths, strict=True) if length]
        behind = sum(self.backlogs.pop(sequence, 0) for sequence in drafted)
        self.caught_up += behind
        if drafted:
            with self.lengths.measure_draft(len(drafted), max(lengths), typical=not behind):
                self.now += max(lengths) * self.forward(len(drafted)) + behind * self.forward(LIMIT) / LIMIT
        for sequence, length in zip(batch, lengths, strict=True):
            accepted = next((n for n in range(length) if self.rng.random() > self.acceptance), length)
            self.lengths.count(1 + length)
            if length:
                self.lengths.learn(sequence, length, accepted)
        rows = len(batch) + sum(lengths)
        self.finish(rows + others, rows, self.hidden if drafted else 0.0)
        return lengths

    def finish(self, tokens: int, rows: int, more: float = 0.0) -> None:
        started, self.now = self.now, self.now + self.step(tokens) * self.rng.uniform(0.95, 1.2) + more
        record = StepRecord(
            number=0, started=started, ended=self.now, tokens=tokens, rows=rows, sequences=1, running=1,
            waiting=0, kv_free=0,
        )  # fmt: skip
        self.observers.step_finished(record)

    def settled(self, batch: list[TokenSequence], steps: int = 400) -> list[float]:
        """The mean length of each sequence over the latest of many steps."""
        chosen = [self.decode(batch) for _ in range(steps)][-100:]
        return [sum(column) / len(chosen) for column in zip(*chosen, strict=True)]


def memory_bound(**more: Any) -> Machine:
    """A big model on a GPU: hardly slower for a hundred tokens than for one, and a draft of a twentieth."""
    return Machine(lambda n: 1 + n / 400, lambda n: 0.05 + n / 8000, **more)


def compute_bound(**more: Any) -> Machine:
    """A small model on a few cores: each token costs."""
    return Machine(lambda n: 0.2 + n * 0.8, lambda n: 0.05 + n * 0.1, **more)


# ------------------------------------------------------------------ what is chosen


def test_nothing_is_drafted_before_anything_was_measured() -> None:
    assert memory_bound().decode(sequences(3)) == [0, 0, 0]


def test_the_likelier_drafts_are_accepted_the_further_ahead_they_go() -> None:
    lengths = []
    for acceptance in (0.1, 0.5, 0.7, 0.95):
        machine = memory_bound(acceptance=acceptance)
        machine.prefill(200)
        lengths += machine.settled(sequences(1))
    assert lengths == sorted(lengths)
    assert lengths[0] < 1.5 and lengths[-1] > 4.5


def test_few_drafts_are_tried_although_a_prompt_took_long_for_each_token() -> None:
    """As on a CPU: arithmetic is what a prompt takes, and reading the weights what a few tokens take."""
    machine = Machine(lambda n: max(1.0, 0.25 * n), lambda n: 0.05, acceptance=0.7)
    machine.prefill(128)
    assert 2.5 < machine.settled(sequences(1))[0] < 3.5


def test_drafting_stops_where_it_does_not_pay() -> None:
    machine = compute_bound(acceptance=0.6)
    machine.prefill(200)
    assert sum(machine.settled(sequences(4))) < 0.2


def test_what_drafting_takes_beside_all_that_is_worked_out_is_noticed() -> None:
    for hidden, least, most in ((0.0, 2.0, 5.0), (2.0, 0.0, 0.3)):
        machine = Machine(lambda n: max(1.0, 0.25 * n), lambda n: 0.05, acceptance=0.7, hidden=hidden)
        machine.prefill(128)
        assert least <= machine.settled(sequences(1))[0] <= most


def test_where_drafting_never_pays_it_is_hardly_ever_thought_of() -> None:
    machine, batch = compute_bound(acceptance=0.1), sequences(1)
    machine.prefill(200)
    machine.settled(batch)
    thought: list[int] = []
    machine.lengths._best = lambda batch: (thought.append(1), ([0], 0.0))[1]  # type: ignore[method-assign]
    for _ in range(1000):
        machine.decode(batch)
    assert len(thought) < 30


def test_drafting_stops_at_the_batch_size_from_which_it_is_slower() -> None:
    """With 40 tokens for free a few sequences are worth drafting for, and a hundred are not."""

    def step(tokens: int) -> float:
        return 1 + max(0, tokens - 40) * 0.05

    few, many = sequences(4), sequences(100)
    machine = Machine(step, lambda n: 0.04, acceptance=0.7)
    machine.prefill(300)
    assert min(machine.settled(few)) > 2
    assert sum(machine.settled(many)) < 5
    assert min(machine.settled(few)) > 2, "and is taken up again"


@pytest.mark.parametrize("step", [lambda n: 0.2 + n * 0.8, lambda n: 3 + n * 0.4, lambda n: max(8, n)])
@pytest.mark.parametrize("batch", [16, 32, 128])
def test_a_busy_server_loses_next_to_nothing(step: Callable[[int], float], batch: int) -> None:
    """Against the same machine without drafts, from the first step on, catching up included."""
    for acceptance in (0.2, 0.6):
        machine = Machine(step, lambda n: 0.05 + n * 0.1, acceptance=acceptance)
        machine.prefill(300)
        started, served = machine.now, sequences(batch)
        machine.backlogs = dict.fromkeys(served, 100)
        for _ in range(300):
            machine.decode(served)
        plain = 300 * machine.step(batch) * 1.075
        assert machine.now - started < plain * 1.03


def test_a_sequence_whose_drafts_fail_is_left_alone_beside_one_whose_drafts_hold() -> None:
    machine = Machine(lambda n: 1 + n / 15, lambda n: 0.02)
    machine.prefill(300)
    good, _ = batch = sequences(2)
    chosen = []
    for _ in range(300):
        lengths = machine.lengths.draft_lengths(batch, lambda sequence: 0)
        for sequence, length in zip(batch, lengths, strict=True):
            machine.lengths.count(1 + length)
            machine.lengths.learn(sequence, length, length if sequence is good else 0)
        machine.finish(2 + sum(lengths), 2 + sum(lengths))
        chosen.append(lengths)
    totals = [sum(column) for column in zip(*chosen[-100:], strict=True)]
    assert totals[0] > 450 and totals[1] < 100


def test_a_machine_that_becomes_faster_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_times, "MAX_AGE_STEPS", 300)
    machine = compute_bound(acceptance=0.9)
    machine.prefill(200)
    batch = sequences(2)
    machine.settled(batch)
    machine.step, machine.forward = memory_bound().step, memory_bound().forward
    for _ in range(10):
        machine.prefill(200)
    assert min(machine.settled(batch, steps=600)) > 2


# ------------------------------------------------------------------ limits


def test_no_more_is_drafted_than_a_sequence_may_still_say() -> None:
    machine = memory_bound(acceptance=0.99)
    machine.prefill(200)
    machine.settled(sequences(1))
    assert max(machine.decode(sequences(1, room=3)) for _ in range(5)) == [2]
    assert machine.decode(sequences(1, room=1)) == [0]


def test_the_end_of_a_request_is_no_reason_to_rest() -> None:
    machine = memory_bound(acceptance=0.99)
    machine.prefill(200)
    machine.settled(sequences(1))
    machine.lengths._backoff._steps = 0
    machine.decode(sequences(1, room=1))
    assert machine.decode(sequences(1)) == [5]


@pytest.mark.parametrize("adaptive", [True, False])
def test_drafts_leave_the_step_its_room_for_others(adaptive: bool) -> None:
    machine = memory_bound(acceptance=0.99)
    machine.lengths = DraftLengthController(5, adaptive=adaptive)
    machine.lengths.start(machine, cost=0.01)  # type: ignore[arg-type]
    machine.prefill(200)
    batch = sequences(100)
    for _ in range(300):
        lengths = machine.decode(batch, others=LIMIT - 200)
    assert 0 < sum(lengths) <= 105


def test_a_long_backlog_for_a_short_answer_is_not_worth_it() -> None:
    machine = Machine(lambda n: 1 + n / 20, lambda n: 0.05 + n / 200)
    machine.prefill(400)
    machine.settled(sequences(1))
    long, short = sequences(1, room=300)[0], sequences(1, room=5)[0]
    machine.backlogs = {long: 2000, short: 2000}
    for _ in range(20):
        machine.decode([long, short])
    assert long not in machine.backlogs and short in machine.backlogs


def test_the_first_steps_with_many_sequences_try_few_drafts() -> None:
    machine = memory_bound()
    machine.prefill(300)
    batch = sequences(64)
    machine.backlogs = dict.fromkeys(batch, 100)
    totals = [sum(machine.decode(batch)) for _ in range(12)]
    assert 0 < next(total for total in totals if total) <= 5
    assert all(later <= 2 * earlier for earlier, later in pairwise(totals) if earlier)
    assert totals[-1] > 100


def test_nothing_is_kept_of_sequences_that_ended() -> None:
    machine = memory_bound()
    machine.prefill(200)
    batch = sequences(5)
    machine.settled(batch, steps=20)
    machine.lengths.forget(batch)
    assert not machine.lengths._acceptance._own


# ------------------------------------------------------------------ the parts


def test_expected_tokens_are_those_of_the_geometric_series() -> None:
    import numpy as np

    plain, *others = expected_speedups(
        np.array([0.5, 0.9]), np.array([3, 3]), lambda drafted: 1.0 + drafted, 0.5
    )
    assert (plain.tokens, plain.seconds) == (2, 1.0)
    deepest = others[-1]
    assert deepest.lengths == [3, 3]
    assert deepest.tokens == pytest.approx(sum(0.5**n for n in range(4)) + sum(0.9**n for n in range(4)))
    assert deepest.seconds == 1.0 + 6 + 3 * 0.5


def test_acceptance_starts_hopeful_and_follows_the_evidence() -> None:
    acceptance, (one, other) = AcceptanceRates(), sequences(2)
    assert acceptance.of(one) == pytest.approx(0.7)
    for _ in range(50):
        acceptance.learn(one, drafted=4, accepted=0)
    assert acceptance.of(one) < 0.1
    assert acceptance.of(one) < acceptance.of(other) < 0.3
    for _ in range(100):
        acceptance.skip([one], everyone=False)
    assert acceptance.of(one) == pytest.approx(acceptance.of(other), abs=0.05)
    for _ in range(10_000):
        acceptance.skip([], everyone=True)
    assert acceptance.of(other) > 0.6, "what was long ago counts no more"


def test_step_times_are_medians_and_straight_lines_between_near_ones() -> None:
    times = StepTimes()
    assert times.seconds(1) is None
    for seconds in (2.0, 1.0, 1.0, 30.0, 1.0):
        times.record(4, seconds)
    one = times.seconds(4)
    assert one == pytest.approx(1.0, rel=0.25)
    assert times.seconds(1) == one, "one size alone says nothing of others"
    times.record(100, 5.0, typical=False)
    assert times.seconds(4) == one
    assert times.seconds(1) == pytest.approx(one - 3 * (5 - one) / 96)
    assert times.seconds(10) == pytest.approx(one), "not less than the smaller one, as when weights are read"
    assert times.seconds(50) == pytest.approx(2.5), "nor less for a token than the larger one"
    times.record(80, 3.0, typical=False)
    assert times.seconds(90) == pytest.approx(4.0)
    times.record(8, one + 0.02, typical=False)
    assert times.seconds(10) == pytest.approx(one + 0.03), "and as much more as smaller steps took more"
    assert times.seconds(196) == pytest.approx(5 + 5 - one)
    for _ in range(3):
        assert times.seconds(100) == 5
        times.record(100, 7.0)
    assert times.seconds(100) == 7, "where there are typical ones, the others do not count"


def test_what_slows_all_steps_down_is_expected_of_those_that_were_not_seen_since() -> None:
    times = StepTimes()
    for tokens in (4, 40):
        for _ in range(5):
            times.record(tokens, tokens / 4)
    for _ in range(100):
        times.record(4, 2.0)
    assert times.seconds(4) == pytest.approx(2.0, rel=0.01)
    assert times.seconds(40) == pytest.approx(20.0, rel=0.1)
