"""The forwards of a draft model: first the tokens that it lacks, then one draft token after another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from turnout.core.engine.logits_processing import adjust
from turnout.core.interfaces.compute import Runner
from turnout.core.interfaces.logits_processor import Row
from turnout.core.interfaces.proposer import DraftRequest, Proposal
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

SHORT_BACKLOG = 32
"""Tokens up to which a sequence does not wait until a sibling has computed the same backlog."""


@dataclass(eq=False)
class _Draft:
    """A sequence whose `length` draft tokens are being made."""

    sequence: TokenSequence
    length: int
    needs_probabilities: bool
    tokens: list[int] = field(default_factory=list)
    """Negative until read from the device: -1 - i for the draft token i of the latest forward."""
    probabilities: list[Tensor] = field(default_factory=list)

    @property
    def row(self) -> Row:
        return Row(self.sequence, self.sequence.index, tuple(self.tokens))

    @property
    def goes_on(self) -> bool:
        return len(self.tokens) < self.length and self.tokens[-1] not in self.sequence.request.stop_ids

    @property
    def useful(self) -> int:
        """The number of draft tokens up to the first that would end the sequence."""
        stops = self.sequence.request.stop_ids
        ends = (count for count, draft_token in enumerate(self.tokens, 1) if draft_token in stops)
        return next(ends, len(self.tokens))

    def chunk(self) -> Chunk:
        """The latest draft token, to be computed by the next forward."""
        return Chunk(self.sequence, len(self.sequence.tokens) + len(self.tokens) - 1, self.tokens[-1:], 1)

    def proposal(self) -> Proposal:
        count = self.useful
        probabilities = torch.stack(self.probabilities[:count]) if self.needs_probabilities else None
        return Proposal(self.sequence, self.tokens[:count], probabilities)


class _PendingTokens:
    """The draft tokens of one forward, on their way from the device."""

    def __init__(self, drafts: Sequence[_Draft], tokens: Callable[[], Tensor]) -> None:
        self._drafts, self._tokens = drafts, tokens
        self._index = len(drafts[0].tokens) - 1

    def read(self) -> None:
        """Waits for the draft tokens and enters them in their drafts."""
        for draft, token in zip(self._drafts, self._tokens().tolist(), strict=True):
            draft.tokens[self._index] = token


class Drafter:
    """Makes draft tokens for all sequences together, in as many forwards as the longest draft has tokens.

    Draft tokens stay on the device, where the next forward takes them from, and are read when all forwards
    are queued. They are read one by one if a logits processor has to know them, and on a CPU, where
    reading is free.
    """

    def __init__(
        self, runner: Runner, memory: DraftMemory, vocab_size: int, served_vocab_size: int, budget: int
    ) -> None:
        """vocab_size: columns of the draft's logits; budget: the most tokens of the first forward."""
        self._runner = runner
        self._memory = memory
        self._vocab_size = vocab_size
        self._served_vocab_size = served_vocab_size
        self._budget = budget

    def propose(self, requests: Sequence[DraftRequest]) -> Iterator[Proposal]:
        chunks, drafts = self._admit(requests)
        if not chunks:
            return
        logits = self._runner.run(Plan(chunks, self._memory.moves()))
        for chunk in chunks:
            self._memory.computed(chunk.sequence, chunk.end)
        one_by_one = logits.values.device.type == "cpu" or any(
            draft.sequence.request.processors for draft in drafts
        )
        active, pending = drafts, list[_PendingTokens]()
        while active:
            tokens = self._draft_next(active, logits)
            pending.append(_PendingTokens(active, to_host_async(tokens)))
            if one_by_one:
                pending.pop().read()
            active = [draft for draft in active if draft.goes_on]
            if active:
                chunks = [draft.chunk() for draft in active]
                on_device = () if one_by_one else (tokens,)
                logits = self._runner.run(Plan(chunks, self._memory.moves(), on_device))
        for later in pending:
            later.read()
        for draft in drafts:
            self._memory.computed_draft(draft.sequence, draft.tokens[:-1])
        yield from (draft.proposal() for draft in drafts)

    # -------------------------------------------------------------- before the draft tokens

    def _admit(self, requests: Sequence[DraftRequest]) -> tuple[list[Chunk], list[_Draft]]:
        """The tokens that the draft lacks, within the budget; and the sequences that then lack none."""
        chunks, drafts, budget = list[Chunk](), list[_Draft](), self._budget
        using, catching_up = {request.sequence for request in requests}, set[Request]()
        for request in sorted(requests, key=lambda request: self._memory.backlog(request.sequence)):
            sequence, backlog = request.sequence, self._memory.backlog(request.sequence)
            if backlog > SHORT_BACKLOG:
                if sequence.request in catching_up:
                    continue  # the first of its siblings computes the tokens that they have in common
                catching_up.add(sequence.request)
            chunk = self._first_chunk(request, min(backlog + 1, budget), using)
            if chunk is None:
                continue
            chunks.append(chunk)
            budget -= len(chunk.tokens)
            if chunk.rows:
                drafts.append(_Draft(sequence, self._length(request), request.needs_probabilities))
        return chunks, drafts

    def _first_chunk(self, request: DraftRequest, count: int, using: set[TokenSequence]) -> Chunk | None:
        """The next `count` tokens of a sequence; None if there is no room for them, or for any draft."""
        sequence, length = request.sequence, self._length(request)
        if count <= 0 or length <= 0:
            return None
        end = len(sequence.tokens)
        upto = self._memory.valid(sequence) + count
        if not self._embeds(sequence.tokens[upto - count : upto]):
            return None
        start = self._memory.reserve(sequence, upto if upto < end else end + length - 1, using)
        if start is None:
            return None
        return Chunk(sequence, start, sequence.tokens[start:upto], int(upto == end))

    def _embeds(self, tokens: Sequence[int]) -> bool:
        """Whether the draft has an embedding for each token: the served model may have more padding."""
        return self._vocab_size >= self._served_vocab_size or max(tokens) < self._vocab_size

    def _length(self, request: DraftRequest) -> int:
        return self._memory.limit(request.sequence, request.tokens)

    # -------------------------------------------------------------- drafting

    def _draft_next(self, drafts: Sequence[_Draft], logits: Logits) -> Tensor:
        """One more draft token for each draft, int64 [drafts] on the device."""
        rows = [draft.row for draft in drafts]
        values = adjust(self._fitted(logits.of(draft.sequence for draft in drafts).float()), rows)
        drawing = [number for number, draft in enumerate(drafts) if draft.needs_probabilities]
        others = [number for number, draft in enumerate(drafts) if not draft.needs_probabilities]
        for number, draft in enumerate(drafts):
            draft.tokens.append(-1 - number)
        if not drawing:
            return choose(values, rows)
        weights = token_weights(_picked(values, drawing), [rows[number].params for number in drawing])
        drawn = exponential_race(
            weights, noise_seeds_of([rows[number] for number in drawing], weights.device)
        )
        for number, row in zip(drawing, weights / weights.sum(dim=-1, keepdim=True), strict=True):
            drafts[number].probabilities.append(row)
        if not others:
            return drawn
        tokens = torch.empty(len(drafts), dtype=torch.int64, device=values.device)
        scatter_rows(tokens, drawing, drawn)
        scatter_rows(tokens, others, choose(_picked(values, others), [rows[number] for number in others]))
        return tokens

    def _fitted(self, logits: Tensor) -> Tensor:
        """Logits with the served model's columns: models of one vocabulary may have different padding."""
        missing = self._served_vocab_size - self._vocab_size
        if missing > 0:
            return F.pad(logits, (0, missing), value=float("-inf"))
        return logits[:, : self._served_vocab_size]


def _picked(values: Tensor, numbers: list[int]) -> Tensor:
    return values if len(numbers) == len(values) else gather_rows(values, numbers)
