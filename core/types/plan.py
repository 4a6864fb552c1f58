"""A plan, which says what a step computes, and the logits that the step returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from operator import getitem
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Hashable

    from torch import Tensor

    from turnout.core.types.logprobs import TokenLogprobs
    from turnout.core.types.request import Sequence

__all__ = ["Chunk", "Logits", "Move", "Plan", "StepShape", "Way"]


# A struct, since hundreds are made in a step: it takes a quarter of the time of a named tuple.
class Chunk(msgspec.Struct, frozen=True, gc=False):
    """A slice of one sequence's tokens (drafts included) to run through the model."""

    sequence: Sequence
    """The sequence that the tokens belong to."""
    start: int
    """The position of the first of `tokens`."""
    tokens: list[int]
    """A number below 0 is a placeholder for a token in the plan's `chosen`; -1 is the first one."""
    rows: int
    """Trailing positions that need logits; 0 while a prompt is only partly computed."""
    scored: range = range(0)
    """Positions of a prompt that need log-probabilities of the token that follows."""
    pooled: range | None = None
    """Of a request that pools: positions whose hidden states it reads. None: the request generates."""

    @property
    def end(self) -> int:
        """The position after the last token."""
        return self.start + len(self.tokens)


Way = Literal["copy", "swap_out", "swap_in"]


class Move(NamedTuple):
    """A copy of the KV of `length` token positions, in all layers.

    ``copy``: inside the pool; ``swap_out``: from the pool to host memory; ``swap_in``: from there to the
    pool.
    """

    source: int
    """The first position to read: in the pool, or in host memory for ``swap_in``."""
    target: int
    """The first position to write: in the pool, or in host memory for ``swap_out``."""
    length: int
    """How many token positions to copy."""
    way: Way = "copy"
    """``copy``, ``swap_out`` or ``swap_in``."""


class StepShape(NamedTuple):
    """What steps have in common that can replay the same captured graph."""

    tokens: int
    """Tokens of the flat batch, with padding."""
    kind: Hashable
    """What else the attention backend distinguishes steps by."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One step: KV moves to carry out in order, then chunks to compute as one flat batch."""

    chunks: list[Chunk]
    """What to compute, as one flat batch."""
    moves: list[Move]
    """What to copy first, in order."""
    chosen: tuple[Tensor, ...] = ()
    """The in-flight tokens of the step before, on the device: int64, numbered consecutively."""

    @property
    def tokens(self) -> int:
        """How many tokens all chunks have."""
        return sum([len(chunk.tokens) for chunk in self.chunks])  # a list is quicker than a generator

    def __bool__(self) -> bool:
        return bool(self.chunks or self.moves)


@dataclass(frozen=True, slots=True)
class Logits:
    """The logits that a plan asked for, and the sequences they belong to."""

    values: Tensor
    """[rows, vocab_size], on the device, in the plan's chunk order."""
    rows: Mapping[Sequence, range]
    """The rows of each sequence."""
    prompts: Mapping[Sequence, list[TokenLogprobs]] = field(default_factory=dict)
    """For each scored position of a chunk, the prompt token that follows it."""
    pick: Callable[[Tensor, list[int]], Tensor] = getitem
    """Returns rows by number; a runner may give a function that does not wait for the device."""
    hidden: Mapping[Sequence, Tensor] = field(default_factory=dict)
    """For each chunk of a request that pools, the hidden states [positions, hidden_size] that it reads; valid
    until the next step."""

    def of(self, sequences: Iterable[Sequence]) -> Tensor:
        """Returns the rows of `sequences`, in that order; without a copy if those are all rows."""
        sequences = list(sequences)
        if sequences == list(self.rows) and len(sequences) == len(self.values):
            return self.values  # a row for each, in order: nearly always
        wanted = list(chain.from_iterable(map(self.rows.__getitem__, sequences)))
        if wanted == list(range(len(self.values))):
            return self.values
        return self.pick(self.values, wanted)
