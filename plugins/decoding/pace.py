"""How far to guess ahead for each sequence, and when not to: whatever brings most tokens per second.

What a step takes, what a guess costs and how often one is accepted are measured while serving. So no model of
the hardware is needed, and a server that is busy with many sequences finds by itself that guessing has become
slower than not guessing, and stops.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from turnout.core.observers import StepRecord
from turnout.core.request import Sequence as TokenSequence
from turnout.core.resources import Resources
from turnout.plugins.decoding.acceptance import Acceptance
from turnout.plugins.decoding.outlook import Outlook, outlooks
from turnout.plugins.decoding.step_times import StepTimes

__all__ = ["Pace"]

MARGIN = 1.05
"""Guessing must promise that much more than not guessing."""
REFRESH = 64
"""One step in so many does not guess, so that it stays known how long that takes."""
LEAST_LEFT = 64
"""Tokens that a sequence is taken to go on for at least, where it may; else as many as it has by now."""
BURST = 4
"""Steps that must all have others' tokens, such as prompts, for these to be counted on in the next."""
KEPT = 9
"""Latest measurements of the draft's cost that count, by their median."""

Backlog = Callable[[TokenSequence], int]
"""Tokens of a sequence that the draft has to catch up with before it guesses."""


class Pace:
    """Chooses depths, and learns from what came of them."""

    def __init__(self, most: int, *, adaptive: bool) -> None:
        self.most = most
        self._adaptive = adaptive
        self._times = StepTimes()
        self._acceptance = Acceptance()
        self._costs: deque[float] = deque(maxlen=KEPT)
        """Of the draft's forwards, as shares of a step of as many tokens."""
        self._reach = most
        """Guesses in one step at most: doubled each time, so that a wrong expectation costs little."""
        self._rounds = 0
        self._mine = 0
        """Tokens of the current step that are this strategy's."""
        self._others: deque[int] = deque([0], maxlen=BURST)
        """Those that are not, of the latest steps."""

    def start(self, resources: Resources, cost: float) -> None:
        """cost: what a forward of the draft is expected to take, as a share of a step of as many tokens."""
        self._clock = resources.clock
        self._limit = resources.max_batched_tokens
        self._costs.append(cost)
        resources.watch_steps("the pace of speculative decoding", self._step_finished)

    # -------------------------------------------------------------- what to do

    def depths(self, sequences: Sequence[TokenSequence], backlog: Backlog) -> list[int]:
        """How many tokens to guess for each; 0: none."""
        most = [max(0, min(self.most, sequence.room - 1)) for sequence in sequences]
        room = max(0, self._limit - len(sequences) - max(self._others))
        if not self._adaptive:
            return _within(room, most, range(len(most)))
        best, gain = self._best(sequences, most)
        behind = [backlog(sequence) if depth else 0 for sequence, depth in zip(sequences, best, strict=True)]
        wanted = [
            depth if depth and self._pays(sequence, gain, tokens) else 0
            for sequence, depth, tokens in zip(sequences, best, behind, strict=True)
        ]
        if not any(wanted):
            self._acceptance.idle()
            self._reach = self.most
            return wanted
        # Who is up to date comes first: the others' backlog is paid for only once there is reach for them.
        order = sorted(range(len(behind)), key=behind.__getitem__)
        chosen = _within(min(room, self._reach), wanted, order)
        self._reach = max(self.most, 2 * sum(chosen))
        return chosen

    def _best(self, sequences: Sequence[TokenSequence], most: list[int]) -> tuple[list[int], float]:
        """The depths that promise most, however far from what was tried, and seconds saved for each token."""
        nothing = [0] * len(sequences)
        self._rounds += 1
        if not sequences or self._times.seconds(1) is None or self._rounds % REFRESH == 0:
            return nothing, 0.0
        plain, *others = self._outlooks(sequences, most)
        best = max(others, key=lambda outlook: outlook.rate, default=plain)
        if best.rate < MARGIN * plain.rate:
            return nothing, 0.0
        return best.depths.tolist(), 1 / plain.rate - 1 / best.rate

    def _outlooks(self, sequences: Sequence[TokenSequence], most: list[int]) -> list[Outlook]:
        base = len(sequences) + min(self._others)
        rates = np.array([self._acceptance.of(sequence) for sequence in sequences])
        forward = self._cost * self._seconds(len(sequences))
        return list(outlooks(rates, np.array(most), lambda guesses: self._seconds(base + guesses), forward))

    def _pays(self, sequence: TokenSequence, gain: float, backlog: int) -> bool:
        """Is the draft's backlog made good by what the sequence gains, that many seconds for each token?"""
        left = min(sequence.room, max(LEAST_LEFT, len(sequence.output)))
        return left * gain > backlog * self._cost * self._seconds(self._limit) / self._limit

    def _seconds(self, tokens: float) -> float:
        seconds = self._times.seconds(tokens)
        assert seconds is not None
        return seconds

    @property
    def _cost(self) -> float:
        return statistics.median(self._costs)

    # -------------------------------------------------------------- what happened

    @contextmanager
    def drafting(self, sequences: int, depth: int, *, typical: bool) -> Iterator[None]:
        """Around the draft's forwards, `depth` of them; not typical where it also catches up."""
        started = self._clock()
        yield
        step = self._times.seconds(sequences)
        if typical and step:
            self._costs.append((self._clock() - started) / depth / step)

    def learn(self, sequence: TokenSequence, guessed: int, accepted: int) -> None:
        """A sequence got its tokens; `guessed` may be 0."""
        self._mine += 1 + guessed
        if guessed:
            self._acceptance.learn(sequence, guessed, accepted)

    def forget(self, sequences: Iterable[TokenSequence]) -> None:
        self._acceptance.forget(sequences)

    def _step_finished(self, step: StepRecord) -> None:
        """Steps in which each token has logits, as in decoding, tell most about those to come."""
        self._times.saw(step.tokens, step.ended - step.started, typical=step.rows == step.tokens)
        self._others.append(step.tokens - self._mine)
        self._mine = 0


def _within(limit: int, wanted: Sequence[int], order: Iterable[int]) -> list[int]:
    """As much of `wanted`, in that order, as `limit` allows over all."""
    chosen = [0] * len(wanted)
    for number in order:
        chosen[number] = min(wanted[number], limit)
        limit -= chosen[number]
    return chosen
