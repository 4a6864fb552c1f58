"""A draft model's forwards: first what it has not run of each sequence, then one guess after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from turnout.core.engine.logits_processing import adjust
from turnout.core.interfaces.logits_processor import Row
from turnout.core.interfaces.proposer import Proposal, Wish
from turnout.core.interfaces.runner import Runner
from turnout.core.types.plan import Chunk, Logits, Plan
from turnout.core.types.request import Request
from turnout.core.types.request import Sequence as TokenSequence
from turnout.kernels.gpu.staging import gather_rows, scatter_rows, to_host_async
from turnout.plugins.proposers.draft_memory import DraftMemory
from turnout.sampling.choose import choose
from turnout.sampling.distributions import token_weights
from turnout.sampling.draws import noise_seeds_of
from turnout.sampling.exponential_race import exponential_race

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
    """Below 0 while nobody knows them: places among what was chosen for all at that time."""
    probabilities: list[Tensor] = field(default_factory=list)

    @property
    def row(self) -> Row:
        return Row(self.sequence, self.sequence.index, tuple(self.guesses))

    @property
    def goes_on(self) -> bool:
        return len(self.guesses) < self.depth and self.guesses[-1] not in self.sequence.request.stop_ids

    @property
    def useful(self) -> int:
        """Guesses up to the first that would end the sequence."""
        stops = self.sequence.request.stop_ids
        ends = (count for count, guess in enumerate(self.guesses, 1) if guess in stops)
        return next(ends, len(self.guesses))

    def chunk(self) -> Chunk:
        """The latest guess, to be run."""
        return Chunk(self.sequence, len(self.sequence.tokens) + len(self.guesses) - 1, self.guesses[-1:], 1)

    def proposal(self) -> Proposal:
        count = self.useful
        probabilities = torch.stack(self.probabilities[:count]) if self.weighed else None
        return Proposal(self.sequence, self.guesses[:count], probabilities)


class _Guessed:
    """Guesses that were made for some runs at a time."""

    def __init__(self, runs: Sequence[_Run], arrival: Callable[[], Tensor]) -> None:
        self._runs, self._arrival = runs, arrival
        self._depth = len(runs[0].guesses) - 1

    def read(self) -> None:
        """Waits, and has the runs know them."""
        for run, token in zip(self._runs, self._arrival().tolist(), strict=True):
            run.guesses[self._depth] = token


class Drafter:
    """Guesses for all sequences together, in as many forwards as the longest draft has tokens.

    Guesses stay on the device, where the next forward looks them up, and are read when all have been asked
    for; one by one where a logits processor has to know them, or where reading is for nothing, on a CPU.
    """

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
        known = logits.values.device.type == "cpu" or any(run.sequence.request.processors for run in runs)
        active, guessed = runs, list[_Guessed]()
        while active:
            tokens = self._guess(active, logits)
            guessed.append(_Guessed(active, to_host_async(tokens)))
            if known:
                guessed.pop().read()
            active = [run for run in active if run.goes_on]
            if active:
                chunks = [run.chunk() for run in active]
                logits = self._runner.run(Plan(chunks, self._memory.moves(), () if known else (tokens,)))
        for each in guessed:
            each.read()
        for run in runs:
            self._memory.fed(run.sequence, run.guesses[:-1])
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

    def _guess(self, runs: Sequence[_Run], logits: Logits) -> Tensor:
        """One more guess for each, by the logits behind what was run of it: int64 [runs], to be read."""
        rows = [run.row for run in runs]
        values = adjust(self._fitted(logits.of(run.sequence for run in runs).float()), rows)
        weighed = [number for number, run in enumerate(runs) if run.weighed]
        others = [number for number, run in enumerate(runs) if not run.weighed]
        for place, run in enumerate(runs):
            run.guesses.append(-1 - place)
        if not weighed:
            return choose(values, rows)
        weights = token_weights(_picked(values, weighed), [rows[number].params for number in weighed])
        drawn = exponential_race(
            weights, noise_seeds_of([rows[number] for number in weighed], weights.device)
        )
        for number, row in zip(weighed, weights / weights.sum(dim=-1, keepdim=True), strict=True):
            runs[number].probabilities.append(row)
        if not others:
            return drawn
        tokens = torch.empty(len(runs), dtype=torch.int64, device=values.device)
        scatter_rows(tokens, weighed, drawn)
        scatter_rows(tokens, others, choose(_picked(values, others), [rows[number] for number in others]))
        return tokens

    def _fitted(self, logits: Tensor) -> Tensor:
        """To the served model's columns: models of one vocabulary may be padded differently."""
        missing = self._served_vocab_size - self._vocab_size
        if missing > 0:
            return F.pad(logits, (0, missing), value=float("-inf"))
        return logits[:, : self._served_vocab_size]


def _picked(values: Tensor, numbers: list[int]) -> Tensor:
    return values if len(numbers) == len(values) else gather_rows(values, numbers)
