"""Runs a check on made-up examples: some in every run of the tests, many more by ``-m slow``."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

__all__ = ["Fuzz"]

MINUTES = float(os.environ.get("TURNOUT_FUZZ_MINUTES", "3"))
"""How long each fuzzer goes on under ``-m slow``."""
ROUND = 200
"""Examples that share a seed there."""
Example = TypeVar("Example")


@dataclass(frozen=True)
class Fuzz:
    """fuzz(strategy, check, few) checks `few` examples, always the same; if `long`, ever new ones."""

    long: bool

    def __call__(
        self, strategy: SearchStrategy[Example], check: Callable[[Example], None], few: int = 60
    ) -> None:
        if not self.long:
            _examples(strategy, check, few, 0)
            return
        end, first = time.monotonic() + 60 * MINUTES, random.SystemRandom().randrange(2**32)
        rounds = 0
        while time.monotonic() < end:
            print(f"seed {first + rounds}", flush=True)
            _examples(strategy, check, ROUND, first + rounds)
            rounds += 1


def _examples(
    strategy: SearchStrategy[Example], check: Callable[[Example], None], count: int, first: int
) -> None:
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
        print_blob=False,
        report_multiple_bugs=False,
    )
    @seed(first)
    @given(strategy)
    def run(example: Example) -> None:
        check(example)

    run()
