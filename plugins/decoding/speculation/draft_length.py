"""How far to guess ahead for each sequence, and when not to: whatever brings most tokens per second.

What a step takes, what a guess costs and how often one is accepted are measured while serving. So no model of
the hardware is needed, and a server that is busy with many sequences finds by itself that guessing has become
slower than not guessing, and stops.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from turnout.core.interfaces.observers import StepRecord
from turnout.core.interfaces.resources import Resources
from turnout.core.types.request import Sequence as TokenSequence
from turnout.plugins.decoding.speculation.acceptance import Acceptance
from turnout.plugins.decoding.speculation.backoff import Rests
from turnout.plugins.decoding.speculation.expected_speedup import Outlook, outlooks
from turnout.plugins.decoding.speculation.latency_correction import Surprise
from turnout.plugins.decoding.speculation.step_times import StepTimes

__all__ = ["Pace"]

MARGIN = 1.03
"""Guessing must promise that much more than not guessing."""
LEAST_LEFT = 64
"""Tokens that a sequence is taken to go on for at least, where it may; else as many as it has by now."""
BURST = 4
"""Steps that must all have others' tokens, such as prompts, for these to be counted on in the next."""

Backlog = Callable[[TokenSequence], int]
"""Tokens of a sequence that the draft has to catch up with before it guesses."""


class Pace:
    """Chooses depths, and learns from what came of them."""

    def __init__(self, most: int, *, adaptive: bool) -> None:
        self.most = most
        self._adaptive = adaptive
        self._times = StepTimes()
        self._acceptance = Acceptance()
        self._forwards = StepTimes()
        """Of the draft, by the number of sequences."""
        self._reach = most
        """Guesses in a step at most: twice those of the latest, so that a wrong expectation costs little."""
        self._rests = Rests()
        self._surprise = Surprise()
        self._promised = 0.0
        """Seconds of a step with the best depths."""
        self._mine = self._guesses = 0
        """Tokens of the current step that are this strategy's, and the guesses among them."""
        self._others: deque[int] = deque([0], maxlen=BURST)
        """Those that are not, of the latest steps."""

    def start(self, resources: Resources, cost: float) -> None:
        """cost: what a forward of the draft is expected to take, as a share of a step of as many tokens."""
        self._clock = resources.clock
        self._limit = resources.max_batched_tokens
        self._cost = cost
        resources.watch_steps("the pace of speculative decoding", self._step_finished)

    # -------------------------------------------------------------- what to do

    def depths(self, sequences: Sequence[TokenSequence], backlog: Backlog) -> list[int]:
        """How many tokens to guess for each; 0: none."""
        room = max(0, self._limit - len(sequences) - max(self._others))
        if not self._adaptive:
            return _within(room, self._most(sequences), range(len(sequences)))
        if self._rests.now(len(sequences)):
            return [0] * len(sequences)
        best, gain = self._best(sequences)
        behind = [backlog(sequence) if depth else 0 for sequence, depth in zip(sequences, best, strict=True)]
        wanted = [
            depth if depth and self._pays(sequence, gain, tokens) else 0
            for sequence, depth, tokens in zip(sequences, best, behind, strict=True)
        ]
        if any(wanted):
            self._rests.end()
        elif any(self._most(sequences)):  # else a request's last token is due, which says nothing
            self._reach = self.most
            self._rests.begin(len(sequences) if self._informed else 0)
            self._surprise.fade()
        # Who is up to date comes first: the others' backlog is paid for only once there is reach for them.
        order = sorted(range(len(behind)), key=behind.__getitem__)
        chosen = _within(min(room, self._reach), wanted, order)
        self._surprise.expect(self._promised if any(chosen) and chosen == best else None)
        idle = [sequence for sequence, depth in zip(sequences, chosen, strict=True) if not depth]
        self._acceptance.idle(idle, everyone=len(idle) == len(chosen))
        return chosen

    @property
    def _informed(self) -> bool:
        """Steps of different sizes have been seen."""
        return self._times.known >= 2

    def _most(self, sequences: Sequence[TokenSequence]) -> list[int]:
        return [max(0, min(self.most, sequence.room - 1)) for sequence in sequences]

    def _best(self, sequences: Sequence[TokenSequence]) -> tuple[list[int], float]:
        """The depths that promise most, however far from what was tried, and seconds saved for each token."""
        nothing = [0] * len(sequences)
        if not sequences or not self._informed:
            return nothing, 0.0
        plain, *others = self._outlooks(sequences)
        best = max(others, key=lambda outlook: outlook.rate, default=plain)
        self._promised = best.seconds
        rate = best.rate / self._surprise.factor
        if rate < MARGIN * plain.rate:
            return nothing, 0.0
        return best.depths, 1 / plain.rate - 1 / rate

    def _outlooks(self, sequences: Sequence[TokenSequence]) -> list[Outlook]:
        base = len(sequences) + min(self._others)
        rates = np.array([self._acceptance.of(sequence) for sequence in sequences])
        most, forward = np.array(self._most(sequences)), self._forward(len(sequences))
        return outlooks(rates, most, lambda guesses: self._seconds(base + guesses), forward)

    def _pays(self, sequence: TokenSequence, gain: float, backlog: int) -> bool:
        """Is the draft's backlog made good by what the sequence gains, that many seconds for each token?"""
        left = min(sequence.room, max(LEAST_LEFT, len(sequence.output)))
        return left * gain > backlog * self._cost * self._seconds(self._limit) / self._limit

    def _seconds(self, tokens: float) -> float:
        seconds = self._times.seconds(tokens)
        assert seconds is not None
        return seconds

    def _forward(self, sequences: int) -> float:
        """What a guess for so many sequences takes."""
        return self._forwards.seconds(sequences) or self._cost * self._seconds(sequences)

    # -------------------------------------------------------------- what happened

    @contextmanager
    def drafting(self, sequences: int, depth: int, *, typical: bool) -> Iterator[None]:
        """Around the draft's forwards, `depth` of them; not typical where it also catches up."""
        started = self._clock()
        yield
        seconds = self._clock() - started
        if typical:
            self._forwards.saw(sequences, seconds / depth)
            self._surprise.drafted(seconds)
        else:
            self._surprise.withdraw()

    def served(self, tokens: int) -> None:
        """So many of the current step are this strategy's."""
        self._mine += tokens

    def learn(self, sequence: TokenSequence, guessed: int, accepted: int) -> None:
        """Guesses for a sequence were verified."""
        self._guesses += guessed
        self._acceptance.learn(sequence, guessed, accepted)

    def forget(self, sequences: Iterable[TokenSequence]) -> None:
        self._acceptance.forget(sequences)

    def _step_finished(self, step: StepRecord) -> None:
        """Steps in which each token has logits, as in decoding, tell most about those to come."""
        self._times.saw(step.tokens, step.ended - step.started, typical=step.rows == step.tokens)
        self._others.append(step.tokens - self._mine)
        if self._guesses:
            self._reach = max(self.most, 2 * self._guesses)
            self._surprise.saw(step.ended - step.started)
        self._surprise.withdraw()
        self._mine = self._guesses = 0


def _within(limit: int, wanted: Sequence[int], order: Iterable[int]) -> list[int]:
    """As much of `wanted`, in that order, as `limit` allows over all."""
    chosen = [0] * len(wanted)
    for number in order:
        chosen[number] = min(wanted[number], limit)
        limit -= chosen[number]
    return chosen
