"""A draft model's forwards: first what it has not run of each sequence, then one guess after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from turnout.core.interfaces import Runner
from turnout.core.logits_processor import Row
from turnout.core.plan import Chunk, Logits, Plan
from turnout.core.processors import adjust
from turnout.core.proposer import Proposal, Wish
from turnout.core.request import Request
from turnout.core.request import Sequence as TokenSequence
from turnout.kernels.gpu.staging import pick_rows
from turnout.plugins.decoding.choose import choose
from turnout.plugins.decoding.distribution import token_weights
from turnout.plugins.decoding.draw import key_of
from turnout.plugins.decoding.race import race
from turnout.plugins.proposers.draft_memory import DraftMemory

__all__ = ["Drafter"]

SHORT = 32
"""A backlog that is not worth waiting until a sibling has run the same tokens."""


@dataclass(eq=False)
class _Run:
    """A sequence on its way to `depth` guesses."""

    sequence: TokenSequence
    depth: int
    weighed: bool
    guesses: list[int] = field(default_factory=list)
    probabilities: list[Tensor] = field(default_factory=list)

    @property
    def row(self) -> Row:
        return Row(self.sequence, self.sequence.index, tuple(self.guesses))

    @property
    def goes_on(self) -> bool:
        return len(self.guesses) < self.depth and self.guesses[-1] not in self.sequence.request.stop_ids

    def chunk(self) -> Chunk:
        """The latest guess, to be run."""
        return Chunk(self.sequence, len(self.sequence.tokens) + len(self.guesses) - 1, self.guesses[-1:], 1)

    def proposal(self) -> Proposal:
        probabilities = torch.stack(self.probabilities) if self.weighed else None
        return Proposal(self.sequence, self.guesses, probabilities)


class Drafter:
    """Guesses for all sequences together, in as many forwards as the longest draft has tokens."""

    def __init__(
        self, runner: Runner, memory: DraftMemory, vocab_size: int, served_vocab_size: int, budget: int
    ) -> None:
        """vocab_size: columns of the draft's logits; budget: tokens to run at most before the first guess."""
        self._runner = runner
        self._memory = memory
        self._vocab_size = vocab_size
        self._served_vocab_size = served_vocab_size
        self._budget = budget

    def propose(self, wishes: Sequence[Wish]) -> Iterator[Proposal]:
        chunks, runs = self._admit(wishes)
        if not chunks:
            return
        logits = self._runner.run(Plan(chunks, self._memory.moves()))
        for chunk in chunks:
            self._memory.ran(chunk.sequence, chunk.end)
        active = runs
        while active:
            self._guess(active, logits)
            active = [run for run in active if run.goes_on]
            if active:
                logits = self._runner.run(Plan([run.chunk() for run in active], self._memory.moves()))
                for run in active:
                    self._memory.fed(run.sequence, run.guesses[-1])
        yield from (run.proposal() for run in runs)

    # -------------------------------------------------------------- what is run first

    def _admit(self, wishes: Sequence[Wish]) -> tuple[list[Chunk], list[_Run]]:
        """What the draft lacks of each sequence, within the budget; and those it then lacks nothing of."""
        chunks, runs, budget = list[Chunk](), list[_Run](), self._budget
        using, catching_up = {wish.sequence for wish in wishes}, set[Request]()
        for wish in sorted(wishes, key=lambda wish: self._memory.backlog(wish.sequence)):
            sequence, backlog = wish.sequence, self._memory.backlog(wish.sequence)
            if backlog > SHORT:
                if sequence.request in catching_up:
                    continue  # the first of its siblings runs what they have in common
                catching_up.add(sequence.request)
            chunk = self._first_chunk(wish, min(backlog + 1, budget), using)
            if chunk is None:
                continue
            chunks.append(chunk)
            budget -= len(chunk.tokens)
            if chunk.rows:
                runs.append(_Run(sequence, self._depth(wish), wish.weighed))
        return chunks, runs

    def _first_chunk(self, wish: Wish, count: int, using: set[TokenSequence]) -> Chunk | None:
        """The next `count` tokens of a sequence; None where there is no room for them, or for any guess."""
        sequence, depth = wish.sequence, self._depth(wish)
        if count <= 0 or depth <= 0:
            return None
        end = len(sequence.tokens)
        upto = self._memory.known(sequence) + count
        if not self._speaks(sequence.tokens[upto - count : upto]):
            return None
        start = self._memory.reserve(sequence, upto if upto < end else end + depth - 1, using)
        if start is None:
            return None
        return Chunk(sequence, start, sequence.tokens[start:upto], int(upto == end))

    def _speaks(self, tokens: Sequence[int]) -> bool:
        """The draft has an embedding for each: what pads the served model's vocabulary may be more."""
        return self._vocab_size >= self._served_vocab_size or max(tokens) < self._vocab_size

    def _depth(self, wish: Wish) -> int:
        return self._memory.depth(wish.sequence, wish.tokens)

    # -------------------------------------------------------------- guessing

    def _guess(self, runs: Sequence[_Run], logits: Logits) -> None:
        """One more guess for each, by the logits behind what was run of it."""
        rows = [run.row for run in runs]
        values = adjust(self._fitted(logits.of(run.sequence for run in runs).float()), rows)
        weighed = [number for number, run in enumerate(runs) if run.weighed]
        others = [number for number, run in enumerate(runs) if not run.weighed]
        if weighed:
            weights = token_weights(_picked(values, weighed), [rows[number].params for number in weighed])
            tokens = race(weights, [key_of(rows[number]) for number in weighed]).tolist()
            probabilities = weights / weights.sum(dim=-1, keepdim=True)
            for number, token, row in zip(weighed, tokens, probabilities, strict=True):
                runs[number].guesses.append(token)
                runs[number].probabilities.append(row)
        if others:
            chosen = choose(_picked(values, others), [rows[number] for number in others])
            for number, token in zip(others, chosen.tolist(), strict=True):
                runs[number].guesses.append(token)

    def _fitted(self, logits: Tensor) -> Tensor:
        """To the served model's columns: models of one vocabulary may be padded differently."""
        missing = self._served_vocab_size - self._vocab_size
        if missing > 0:
            return F.pad(logits, (0, missing), value=float("-inf"))
        return logits[:, : self._served_vocab_size]


def _picked(values: Tensor, numbers: list[int]) -> Tensor:
    return values if len(numbers) == len(values) else pick_rows(values, numbers)
