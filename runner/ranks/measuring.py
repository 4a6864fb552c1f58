"""Measures, on all ranks at once, what `--preemption auto` decides by.

Rank 0's clock decides how long a measured chunk is, so it tells the others; all else follows from the
configuration. Each rank moves its part of the keys and values, as it will in service.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar

import msgspec
import torch

from turnout.core.interfaces.kv import KVCache
from turnout.core.scheduling.preemption import SwapCosts
from turnout.core.types.plan import Logits, Plan
from turnout.models.sharding.stages import Stage
from turnout.runner.execution.model_runner import ModelRunner
from turnout.runner.memory.swap_costs import measure

__all__ = ["Measuring", "follow_measuring", "measure_together"]


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
    def of(cls, message: bytes | None) -> Measuring | None:
        """Returns what a message asks; None: it is another one."""
        asks = message is not None and message.startswith(cls.mark)
        return msgspec.msgpack.decode(message, type=cls) if message and asks else None


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


def measure_together(
    runner: ModelRunner, cache: KVCache, asked: Measuring, send: Callable[[bytes], None]
) -> SwapCosts:
    """Measures on rank 0. runner, cache: as `measure` takes them; send: to all followers."""
    encode = msgspec.msgpack.encode
    send(encode(asked))

    def agree(tokens: int) -> int:
        send(encode(tokens))
        return tokens

    return measure(Together(runner), cache, asked.length, asked.chunk, agree)


def follow_measuring(runner: ModelRunner, cache: KVCache, asked: Measuring, frames: Iterator[bytes]) -> None:
    """Takes part on a follower. frames: what rank 0 sends behind `asked`."""

    def agree(_: int) -> int:
        return msgspec.msgpack.decode(next(frames), type=int)

    measure(Together(runner), cache, asked.length, asked.chunk, agree)
