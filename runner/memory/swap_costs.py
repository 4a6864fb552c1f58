"""Measures, at start-up, what swapping takes on this machine, and what computing again takes.

A few steps are measured: a chunk without context, the same chunk behind a long one, and moves to host memory
and back.

::

    seconds(chunk of n behind c) = n · computed_token + (n · c + n² / 2) · computed_pair
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

import torch

from turnout.core.interfaces.kv import KVCache, Span
from turnout.core.scheduling.preemption import SwapCosts
from turnout.core.types.plan import Chunk, Logits, Move, Plan
from turnout.core.types.request import Sequence
from turnout.runner.memory.probes import probe

__all__ = ["LENGTH", "measure"]

LENGTH = 2048
"""Positions of the longest context that is measured."""
FIRST = 16
"""Tokens of the first chunk, whose time says how long later ones may be."""
MEASURE_SECONDS = 0.15
"""A chunk may take so long, judged by the first one."""
RUNS, RUNS_ON_GPU = 2, 3
"""The first touches new memory, and on a GPU the second may capture a graph that the third replays."""


class MeasuredRunner(Protocol):
    """Runs steps on a device."""

    device: torch.device

    def run(self, plan: Plan) -> Logits: ...


def itself(tokens: int) -> int:
    return tokens


def measure(
    runner: MeasuredRunner,
    cache: KVCache,
    length: int,
    chunk: int,
    agree: Callable[[int], int] = itself,
) -> SwapCosts:
    """Returns the costs of swapping and of computing again.

    cache: one of its own, whose memory, as its device half's, is overwritten and never released; length:
    positions that it has room for, in the pool and in host memory; chunk: most tokens of a step; agree: given
    the tokens of a chunk that this machine can afford, returns how many all ranks take.
    """
    sequence = probe(length)
    if not cache.reserve([Span(sequence, 0, length)]):
        raise RuntimeError(f"an empty pool of {cache.capacity} positions has no room for {length}")
    # First, since it fills the pool: memory that was never written is quicker to read.
    moving = _seconds(runner, partial(_move, runner, length))
    compute = partial(_compute, runner, sequence)
    first = min(FIRST, chunk, length)
    affordable = int(MEASURE_SECONDS / _seconds(runner, partial(compute, 0, first)) * first)
    tokens = agree(max(first, min(chunk, length - length // 2, affordable)))
    alone = _seconds(runner, partial(compute, 0, tokens))
    behind = _seconds(runner, partial(compute, length - tokens, tokens))
    pair = max(0.0, behind - alone) / (tokens * max(1, length - tokens))
    return SwapCosts(
        moved_token=moving / length,
        computed_token=max(0.0, alone - tokens * tokens / 2 * pair) / tokens,
        computed_pair=pair,
    )


def _move(runner: MeasuredRunner, length: int) -> None:
    runner.run(Plan([], [Move(0, 0, length, "swap_out"), Move(0, 0, length, "swap_in")]))


def _compute(runner: MeasuredRunner, sequence: Sequence, start: int, tokens: int) -> None:
    chunk = Chunk(sequence, start, sequence.tokens[start : start + tokens], 0)
    runner.run(Plan([chunk], []))


def _seconds(runner: MeasuredRunner, work: Callable[[], None]) -> float:
    """Returns the duration of the shortest of a few runs."""
    runs = RUNS_ON_GPU if runner.device.type == "cuda" else RUNS
    return min(_once(runner, work) for _ in range(runs))


def _once(runner: MeasuredRunner, work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    if runner.device.type == "cuda":
        torch.cuda.synchronize(runner.device)
    return max(time.perf_counter() - started, 1e-9)
