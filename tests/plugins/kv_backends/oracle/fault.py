"""What a fault is that the stress test is to find, and where it may strike."""

from __future__ import annotations

import random

from stress_case import Case

from turnout.core.engine.engine import Engine
from turnout.core.interfaces.attention import AttentionBackend
from turnout.core.interfaces.kv import KVCache
from turnout.core.types.plan import Move

__all__ = ["Fault", "swaps_out"]


class Fault:
    """Something to go wrong in a run. By itself, nothing does."""

    windowed = False
    """Whether it is one of models with windows."""

    def __init__(self, seed: int = 0) -> None:
        self.happened = 0
        """How often it did."""
        self._at = random.Random(seed).randrange(4)

    def suits(self, case: Case) -> bool:
        """Whether it could happen."""
        return True

    def break_host_half(self, kv: KVCache) -> None:
        """Before it is used."""

    def break_device_half(self, attention: AttentionBackend) -> None:
        """Before it is used."""

    def break_engine(self, engine: Engine) -> None:
        """Before it is used."""

    def carried_out(self, moves: list[Move]) -> list[Move]:
        """What is done instead of a step's moves."""
        return moves

    def after_step(self, engine: Engine) -> None:
        """Between two steps."""

    def now(self) -> bool:
        """At each chance: is this the one?"""
        self._at -= 1
        self.happened += self._at == -1
        return self._at == -1


def swaps_out(case: Case) -> bool:
    """Whether anything of it may be swapped out."""
    return case.pool.swap > 0 and case.preemption != "recompute"
