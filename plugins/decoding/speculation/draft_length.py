"""Chooses how many tokens to draft for each sequence: as many as give the most tokens per second, maybe none.

Step times, draft times and acceptance rates are measured while serving. So the controller needs no model of
the hardware: a server that is busy with many sequences finds that steps with drafts have become slower than
steps without, and stops drafting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from turnout.core.interfaces.observers import StepRecord
from turnout.core.interfaces.resources import Resources
from turnout.core.types.request import Sequence as TokenSequence
from turnout.plugins.decoding.speculation.acceptance import (
    AcceptanceRates,
    ExpectedSpeedup,
    expected_speedups,
)
from turnout.plugins.decoding.speculation.step_times import StepTimes

__all__ = ["DraftLengthController"]

MARGIN = 1.03
"""The expected speedup from which drafting is worthwhile."""
MIN_REMAINING_TOKENS = 64
"""Tokens that a sequence is expected to produce at least, if its limit allows; else as many as so far."""
BURST_STEPS = 4
"""After so many steps in a row that contain other tokens, such as prompts, the next is expected to, too."""

Backlog = Callable[[TokenSequence], int]
"""Returns how many tokens of a sequence the draft must process before it can draft."""


class DraftLengthController:
    """Chooses draft lengths, and learns from the steps that follow."""

    def __init__(self, max_length: int, *, adaptive: bool) -> None:
        self.max_length = max_length
        self._adaptive = adaptive
        self._step_times = StepTimes()
        self._draft_times = StepTimes()
        """Times of one forward of the draft, by the number of sequences."""
        self._acceptance = AcceptanceRates()
        self._max_draft_tokens = max_length
        """The most draft tokens in a step: twice those of the latest: a wrong expectation costs little."""
        self._backoff = Backoff()
        self._correction = LatencyCorrection()
        self._expected_seconds = 0.0
        """The expected time of a step with the best draft lengths."""
        self._own_tokens = self._draft_tokens = 0
        """Tokens of the current step that are this strategy's, and the draft tokens among them."""
        self._other_tokens: deque[int] = deque([0], maxlen=BURST_STEPS)
        """Tokens of the latest steps that are not this strategy's."""

    def start(self, resources: Resources, cost: float) -> None:
        """cost: the expected time of a draft forward, as a share of a step of the model of as many tokens."""
        self._clock = resources.clock
        self._max_step_tokens = resources.max_batched_tokens
        self._cost = cost
        resources.watch_steps("the draft lengths of speculative decoding", self._step_finished)

    # -------------------------------------------------------------- choosing

    def draft_lengths(self, sequences: Sequence[TokenSequence], backlog: Backlog) -> list[int]:
        """The number of tokens to draft for each sequence; 0: none."""
        room = max(0, self._max_step_tokens - len(sequences) - max(self._other_tokens))
        if not self._adaptive:
            return _within(room, self._limits(sequences), range(len(sequences)))
        if self._backoff.skips(len(sequences)):
            return [0] * len(sequences)
        best, gain = self._best(sequences)
        behind = [
            backlog(sequence) if length else 0 for sequence, length in zip(sequences, best, strict=True)
        ]
        wanted = [
            length if length and self._pays(sequence, gain, tokens) else 0
            for sequence, length, tokens in zip(sequences, best, behind, strict=True)
        ]
        if any(wanted):
            self._backoff.reset()
        elif any(self._limits(sequences)):  # otherwise only last tokens are due, which says nothing
            self._max_draft_tokens = self.max_length
            self._backoff.begin(len(sequences) if self._informed else 0)
            self._correction.decay()
        # Sequences without a backlog come first: the others' is paid for only once there is room for them.
        order = sorted(range(len(behind)), key=behind.__getitem__)
        chosen = _within(min(room, self._max_draft_tokens), wanted, order)
        self._correction.expect(self._expected_seconds if any(chosen) and chosen == best else None)
        skipped = [sequence for sequence, length in zip(sequences, chosen, strict=True) if not length]
        self._acceptance.skip(skipped, everyone=len(skipped) == len(chosen))
        return chosen

    @property
    def _informed(self) -> bool:
        """Steps of at least two sizes were measured."""
        return self._step_times.known_sizes >= 2

    def _limits(self, sequences: Sequence[TokenSequence]) -> list[int]:
        return [max(0, min(self.max_length, sequence.room - 1)) for sequence in sequences]

    def _best(self, sequences: Sequence[TokenSequence]) -> tuple[list[int], float]:
        """The draft lengths with the highest expected rate, and the seconds that they save for each token.

        They may be far from those that were tried so far.
        """
        nothing = [0] * len(sequences)
        if not sequences or not self._informed:
            return nothing, 0.0
        plain, *others = self._speedups(sequences)
        best = max(others, key=lambda speedup: speedup.rate, default=plain)
        self._expected_seconds = best.seconds
        rate = best.rate / self._correction.factor
        if rate < MARGIN * plain.rate:
            return nothing, 0.0
        return best.lengths, 1 / plain.rate - 1 / rate

    def _speedups(self, sequences: Sequence[TokenSequence]) -> list[ExpectedSpeedup]:
        base = len(sequences) + min(self._other_tokens)
        rates = np.array([self._acceptance.of(sequence) for sequence in sequences])
        limits, forward = np.array(self._limits(sequences)), self._forward_seconds(len(sequences))
        return expected_speedups(
            rates, limits, lambda draft_tokens: self._seconds(base + draft_tokens), forward
        )

    def _pays(self, sequence: TokenSequence, gain: float, backlog: int) -> bool:
        """Whether a sequence gains more than its backlog costs. gain: seconds for each token."""
        remaining = min(sequence.room, max(MIN_REMAINING_TOKENS, len(sequence.output)))
        cost = backlog * self._cost * self._seconds(self._max_step_tokens) / self._max_step_tokens
        return remaining * gain > cost

    def _seconds(self, tokens: float) -> float:
        seconds = self._step_times.seconds(tokens)
        assert seconds is not None
        return seconds

    def _forward_seconds(self, sequences: int) -> float:
        """The expected time of a draft forward for so many sequences."""
        return self._draft_times.seconds(sequences) or self._cost * self._seconds(sequences)

    # -------------------------------------------------------------- learning

    @contextmanager
    def measure_draft(self, sequences: int, length: int, *, typical: bool) -> Iterator[None]:
        """Measures `length` draft forwards. They are not typical if the draft also processes a backlog."""
        started = self._clock()
        yield
        seconds = self._clock() - started
        if typical:
            self._draft_times.record(sequences, seconds / length)
            self._correction.record_draft(seconds)
        else:
            self._correction.cancel()

    def count(self, tokens: int) -> None:
        """Counts tokens of the current step that are this strategy's."""
        self._own_tokens += tokens

    def learn(self, sequence: TokenSequence, drafted: int, accepted: int) -> None:
        """The draft tokens for a sequence were verified."""
        self._draft_tokens += drafted
        self._acceptance.learn(sequence, drafted, accepted)

    def forget(self, sequences: Iterable[TokenSequence]) -> None:
        self._acceptance.forget(sequences)

    def _step_finished(self, step: StepRecord) -> None:
        """Steps in which every token has logits, as in decoding, are the typical ones."""
        self._step_times.record(step.tokens, step.ended - step.started, typical=step.rows == step.tokens)
        self._other_tokens.append(step.tokens - self._own_tokens)
        if self._draft_tokens:
            self._max_draft_tokens = max(self.max_length, 2 * self._draft_tokens)
            self._correction.record_step(step.ended - step.started)
        self._correction.cancel()
        self._own_tokens = self._draft_tokens = 0


def _within(limit: int, wanted: Sequence[int], order: Iterable[int]) -> list[int]:
    """`wanted`, with a sum of at most `limit`; the first in `order` take precedence."""
    chosen = [0] * len(wanted)
    for number in order:
        chosen[number] = min(wanted[number], limit)
        limit -= chosen[number]
    return chosen


# ------------------------------------------------------------------ pauses

MEASURE_EVERY_STEPS = 64
"""One step in so many drafts nothing, so that the time of such steps stays known."""
MIN_PAUSE_STEPS = 2
"""Steps without drafts after a decision not to draft: as many as there are sequences, if that is more, since
the decision takes time for each of them."""
MAX_REFUSALS = 4
"""Decisions in a row not to draft, after which each pause is twice as long as the one before."""
MAX_PAUSE_STEPS = 64


class Backoff:
    """Steps in which nothing is drafted and nothing is decided.

    The decision whether to draft takes time, too. While it keeps being "no", it is made ever more rarely.
    """

    def __init__(self) -> None:
        self._steps = self._remaining = self._refusals = self._sequences = 0

    def skips(self, sequences: int) -> bool:
        """Counts a step with so many sequences, and returns whether to make it without draft tokens."""
        if sequences < self._sequences:  # draft tokens may pay now, for fewer sequences
            self.reset()
        self._sequences = sequences
        self._steps += 1
        pausing = self._remaining > 0
        self._remaining = max(0, self._remaining - 1)
        return pausing or self._steps % MEASURE_EVERY_STEPS == 0

    def begin(self, sequences: int) -> None:
        """Begins a pause, since draft tokens would not pay. sequences: 0 if too little is known to decide."""
        length = MIN_PAUSE_STEPS << max(0, self._refusals - MAX_REFUSALS)
        self._remaining = max(sequences, min(MAX_PAUSE_STEPS, length)) if sequences else MIN_PAUSE_STEPS
        self._refusals += 1

    def reset(self) -> None:
        """Ends the pause: draft tokens pay again, or may."""
        self._remaining = self._refusals = 0


# ------------------------------------------------------------------ what the expectation leaves out

WEIGHT_OF_LATEST = 0.1
"""Weight of the latest step with draft tokens in the factor."""
DECAY = 0.98
"""Share of the correction that is left after a decision not to draft: in the end drafts are tried again."""
MIN_RATIO, MAX_RATIO = 0.25, 4.0
"""Bounds of what a single step contributes."""


class LatencyCorrection:
    """Learns how much longer steps with draft tokens take than expected.

    It compares the expected and the measured times of steps with the best draft lengths.
    """

    def __init__(self) -> None:
        self.factor = 1.0
        """Measured over expected time."""
        self._expected: float | None = None
        """Seconds of the current step and its draft; None: the step is not compared."""
        self._draft_seconds = 0.0

    def expect(self, seconds: float | None) -> None:
        """Sets the expected time of the next step and its draft, before correction.

        None: the step does not have the best draft lengths.
        """
        self._expected = seconds

    def record_draft(self, seconds: float) -> None:
        self._draft_seconds = seconds

    def cancel(self) -> None:
        """The step is over, or was disturbed, for instance by a backlog."""
        self._expected = None

    def record_step(self, seconds: float) -> None:
        if self._expected:
            ratio = (self._draft_seconds + seconds) / self._expected
            self.factor += WEIGHT_OF_LATEST * (min(MAX_RATIO, max(MIN_RATIO, ratio)) - self.factor)

    def decay(self) -> None:
        """Moves the factor towards 1 after a decision not to draft."""
        self.factor = 1 + DECAY * (self.factor - 1)
