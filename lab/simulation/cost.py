"""The duration of a step: a sum of a few terms that have a meaning, each with one coefficient.

::

    seconds = fixed + max(weights, tokens)           a forward pass without context, by its tokens
            + sequence · sequences + row · rows      metadata of each; its logits, and choosing by them
            + group · groups                         attention is computed in groups of chunks that are alike
            + prompt · prompts                       chunks of more than the next token
            + read · context + pair · pairs          positions that it reads, and queries times positions
            + far · (context beyond)                 what more a position takes where caches hold fewer
            + move · moved                           KV positions copied, swapped out or in
            + host + runner · running + waiter · waiting + beginner · prompts     planning and bookkeeping
            + request · begun                                                     taking in, beginning, ending
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

import msgspec

from turnout.core.errors import ConfigError
from turnout.core.scheduling.preemption import SwapCosts
from turnout.core.types.model_spec import ModelSpec
from turnout.core.types.plan import Plan
from turnout.lab.simulation.reach import EVERYTHING, Reach

__all__ = ["CostModel", "Fit", "Kind", "Seconds", "Work", "kind", "work_of"]


Kind = tuple[int, int]
"""Of a chunk: its tokens, and a class of its context's length, which grows with the length's logarithm."""

GRAIN = 16
"""Positions: contexts that take as many of these, or up to twice as many, are alike."""


def kind(tokens: int, end: int) -> Kind:
    """`end`: positions up to the end of the chunk."""
    return tokens, (-(-end // GRAIN)).bit_length()


@dataclass(slots=True)
class Work:
    """A step in numbers."""

    tokens: int = 0
    """Run through the model."""
    sequences: int = 0
    rows: int = 0
    """With logits."""
    groups: int = 0
    """Kinds of chunks."""
    prompts: int = 0
    """Chunks of more than the next token: prompts, pieces of them, drafts."""
    begun: int = 0
    """Requests whose prompt it computes to its end."""
    context: float = 0
    """Positions that attention reads, over all sequences: each one's, up to the end of its chunk; where
    layers have windows, the mean over layers."""
    pairs: float = 0.0
    """Of a query and a position that it attends to, in the mean over layers."""
    moved: int = 0
    """Positions copied, swapped out or in."""
    running: int = 0
    waiting: int = 0


def work_of(plan: Plan, beside: Collection[Kind] = (), reaches: Sequence[Reach] = EVERYTHING) -> Work:
    """`running` and `waiting` are left at 0: a plan does not say.

    `beside`: kinds of chunks that are computed and not in the plan. `reaches`: of the model's layers.
    """
    work, kinds = Work(), set(beside)
    for chunk in plan.chunks:
        start, length = chunk.start, len(chunk.tokens)
        end = start + length
        work.tokens += length
        work.sequences += 1
        work.rows += chunk.rows
        work.prompts += length > 1
        work.begun += end == len(chunk.sequence.request.prompt)
        for reach in reaches:
            work.context += reach.share * reach.read(start, length)
            work.pairs += reach.share * reach.pairs(start, length)
        kinds.add(kind(length, end))
    work.groups = len(kinds)
    work.moved = sum(move.length for move in plan.moves)
    return work


@dataclass(frozen=True)
class Seconds:
    """The coefficients; none is negative."""

    fixed: float = 0.0
    """A step, whatever is in it."""
    weights: float = 0.0
    """Reading the weights, where arithmetic on enough tokens hides it."""
    tokens: tuple[tuple[int, float], ...] = ()
    """What one more takes, by how many there are: ``(0, 1e-3), (8, 2e-4)`` is a millisecond for each of the
    first eight, and a fifth of it for those beyond."""
    sequence: float = 0.0
    row: float = 0.0
    group: float = 0.0
    prompt: float = 0.0
    """A chunk of more than the next token, beside its tokens."""
    read: float = 0.0
    """A position of context, over all layers."""
    far: tuple[tuple[int, float], ...] = ()
    """What a position takes more, by how many there are: ``(4096, 1e-7)`` is 0.1 us more for each beyond
    4,096, which caches do not hold."""
    pair: float = 0.0
    move: float = 0.0
    host: float = 0.0
    """Planning and bookkeeping of a step, on the CPU,"""
    runner: float = 0.0
    """for each request that runs,"""
    waiter: float = 0.0
    """for each that waits,"""
    beginner: float = 0.0
    """for each that computes more than its next token,"""
    request: float = 0.0
    """and for each from when it comes to its end, all in the step that begins its answer."""

    def __post_init__(self) -> None:
        for name, value, _ in self.terms():
            if not 0 <= value < math.inf:
                raise ConfigError(f"the cost model's {name} must be seconds, at least 0, not {value!r}")
        counts = [count for count, _ in self.far]
        if counts != sorted(set(counts)) or any(count < 0 for count in counts):
            raise ConfigError(f"the cost model's far must go up from 0 on, not {counts}")
        counts = [count for count, _ in self.tokens]
        if counts and (counts[0] != 0 or counts != sorted(set(counts))):
            raise ConfigError(f"the cost model's tokens must begin at 0 and go up, not {counts}")

    def terms(self) -> Iterator[tuple[str, float, str]]:
        """Name, seconds, and of what."""
        for field in fields(self):
            if field.name == "tokens":
                for count, rate in self.tokens:
                    yield "tokens", rate, f"a token, beyond {count}" if count else "a token"
            elif field.name == "far":
                for count, rate in self.far:
                    yield "far", rate, f"more for a position that attention reads, beyond {count}"
            else:
                yield field.name, getattr(self, field.name), _MEANINGS[field.name]

    def forward(self, tokens: int) -> float:
        """A pass of so many, but for what it always takes."""
        total, rates = 0.0, self.tokens
        for index, (start, rate) in enumerate(rates):
            if tokens <= start:
                break
            end = rates[index + 1][0] if index + 1 < len(rates) else tokens
            total += rate * (min(tokens, end) - start)
        return total

    def reading(self, context: float) -> float:
        """Reading so many positions."""
        total = self.read * context
        for start, rate in self.far:
            if context > start:
                total += rate * (context - start)
        return total

    def of_batch(self, work: Work) -> float:
        """The terms that depend on what is in a batch, and not on its context."""
        return (
            self.fixed
            + max(self.weights, self.forward(work.tokens))
            + self.sequence * work.sequences
            + self.row * work.rows
            + self.group * work.groups
            + self.prompt * work.prompts
        )

    def of(self, work: Work) -> float:
        return (
            self.of_batch(work)
            + self.reading(work.context)
            + self.pair * work.pairs
            + self.move * work.moved
            + self.host
            + self.runner * work.running
            + self.waiter * work.waiting
            + self.beginner * work.prompts
            + self.request * work.begun
        )


_MEANINGS = {
    "fixed": "a step",
    "weights": "a step, unless its tokens take longer",
    "sequence": "a sequence",
    "row": "a row of logits",
    "group": "a group that attention is computed in",
    "prompt": "a chunk of more than the next token",
    "read": "a position that attention reads",
    "pair": "a query and a position",
    "move": "a KV position that is moved",
    "host": "planning a step",
    "runner": "planning, for a request that runs",
    "waiter": "planning, for one that waits",
    "beginner": "planning, for one that computes more than its next token",
    "request": "planning, for a request from when it comes to its end",
}


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """How well a fitted model agrees with what was measured. Errors are relative, of a step."""

    steps: int
    mean: float
    """Mean absolute error."""
    p90: float
    worst: float
    bias: float
    """Of the sum over all steps."""


class CostModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model on a machine: everything that a simulation needs beside an `EngineConfig`."""

    name: str
    note: str = ""
    """Where the numbers come from."""
    estimate: bool = False
    """Computed from data sheets, not measured."""
    device: Literal["cpu", "cuda"]
    """Decides defaults, such as how many tokens a step computes."""
    kv_memory: int
    """Bytes that a KV pool gets where the configuration does not say."""
    itemsize: int
    """Bytes of a number in the dtype that is computed in."""
    model: ModelSpec
    seconds: Seconds
    fit: Fit | None = None

    def swap_costs(self) -> SwapCosts:
        """The costs that the engine would measure at start-up."""
        return SwapCosts(
            moved_token=2 * self.seconds.move,
            computed_token=self.seconds.tokens[-1][1] if self.seconds.tokens else 0.0,
            computed_pair=self.seconds.pair,
        )

    def save(self, file: Path) -> None:
        file.write_bytes(msgspec.json.format(msgspec.json.encode(self)) + b"\n")

    @classmethod
    def load(cls, file: Path) -> CostModel:
        """Raises ConfigError, naming the file, for what is not one."""
        try:
            return msgspec.json.decode(file.read_bytes(), type=cls)
        except OSError as error:
            raise ConfigError(f"the cost model {file} cannot be read: {error.strerror or error}") from None
        except (msgspec.DecodeError, ConfigError) as error:
            raise ConfigError(f"{file} is not a cost model: {error}; `turnout profile` writes one") from None
