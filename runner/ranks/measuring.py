"""Measures, on all ranks at once, what `--preemption auto` decides by.

Rank 0's clock decides how long a measured chunk is, so it tells the others; all else follows from the
configuration. Each rank moves its part of the keys and values, as it will in service.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar

import msgspec
import torch

from turnout.core.interfaces.eviction import EvictionPolicy
from turnout.core.interfaces.kv import PoolSize
from turnout.core.scheduling.preemption import SwapCosts
from turnout.core.types.plan import Logits, Plan
from turnout.models.sharding.stages import Stage
from turnout.runner.execution.model_runner import ModelRunner
from turnout.runner.kv_memory import KVHalves
from turnout.runner.memory.swap_costs import measure

__all__ = ["Measuring", "follow_measuring", "measured"]


class Measuring(msgspec.Struct, array_like=True, tag="measuring"):
    """Asks a follower to take part."""

    room: int
    """Positions of the pool, and of host memory."""
    length: int
    chunk: int
    """As `measure` takes them."""
    mark: ClassVar[bytes] = b"\x94\xa9measuring"
    """What its message begins with, and no other's."""

    @classmethod
    def of(cls, message: bytes) -> Measuring | None:
        return msgspec.msgpack.decode(message, type=cls) if message.startswith(cls.mark) else None


class Together:
    """Runs a step on this rank, in time with the others."""

    def __init__(self, runner: ModelRunner) -> None:
        self.device: torch.device = runner.device
        self._runner = runner

    def run(self, plan: Plan) -> Logits:
        step = self._runner.begin(plan)
        if isinstance(self._runner.model, Stage):
            self._runner.model.pass_on()
        return self._runner.finish(step)


def measured(
    halves: KVHalves,
    model: torch.nn.Module,
    device: torch.device,
    asked: Measuring,
    eviction: EvictionPolicy,
    agree: Callable[[int], int],
) -> SwapCosts:
    """Measures on this rank, in KV memory of its own, which is freed afterwards."""
    cache = halves.cache(PoolSize(asked.room, asked.room), eviction)
    runner = Together(ModelRunner(model, halves.attention(cache), device))
    return measure(runner, cache, asked.length, asked.chunk, agree)


def follow_measuring(
    frames: Iterator[bytes],
    halves: KVHalves,
    model: torch.nn.Module,
    device: torch.device,
    eviction: EvictionPolicy,
) -> bytes | None:
    """Takes part if rank 0 measures; returns the first message behind that, None at the end."""
    first = next(frames, None)
    asked = None if first is None else Measuring.of(first)
    if asked is None:
        return first

    def agree(_: int) -> int:
        return int(msgspec.msgpack.decode(next(frames), type=int))

    measured(halves, model, device, asked, eviction, agree)
    return next(frames, None)
