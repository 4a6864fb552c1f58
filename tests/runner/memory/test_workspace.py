"""What a step takes is measured by the largest step that there can be."""

from __future__ import annotations

import torch

from turnout.core.interfaces.compute import ComputeContext
from turnout.core.interfaces.kv import PoolSize
from turnout.core.types.plan import Logits, Plan
from turnout.plugins.evictions.lru import Lru
from turnout.plugins.kv_backends.paged.backend import Paged
from turnout.runner.execution.model_runner import ModelRunner
from turnout.runner.memory.workspace import step_bytes
from turnout.testing.toy.attention import attention_toy, toy_spec


class Watched(ModelRunner):
    """Notes how long the chunks of each step are."""

    def run(self, plan: Plan) -> Logits:
        self.steps.append([len(chunk.tokens) for chunk in plan.chunks])
        return super().run(plan)


class Meter:
    """Counts steps, not bytes. Implements Meter."""

    def __init__(self, runner: Watched) -> None:
        self._runner = runner
        self._before = 0

    def start(self) -> None:
        self._before = len(self._runner.steps)

    def peak(self) -> int:
        return len(self._runner.steps) - self._before


def test_prompts_of_full_length_that_fill_a_step() -> None:
    """Once before it is measured: what is kept for later steps is no part of what a step takes."""
    backend, cpu = Paged(block_size=4), torch.device("cpu")
    cache = backend.cache(PoolSize(48), Lru())
    runner = Watched(
        attention_toy(torch.float64),
        backend.attention(toy_spec(), cache, ComputeContext(cpu, torch.float64)),
        cpu,
    )
    runner.steps = []
    assert step_bytes(runner, cache, 40, 16, Meter(runner)) == 1
    assert runner.steps == [[16, 16, 8]] * 2
