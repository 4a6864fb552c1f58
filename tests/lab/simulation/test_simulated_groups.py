"""KV groups take as many pages in a simulation as in the engine with its model, step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from simulations import SECONDS
from test_simulated_plans import WORK, Watched, arrivals, serve

from turnout.config import EngineConfig
from turnout.core.registry.registry import Registry
from turnout.core.types.plan import Logits, Plan
from turnout.lab.simulation.assembly import build_simulated
from turnout.lab.simulation.cost import CostModel
from turnout.lab.simulation.virtual_engine import VirtualClock
from turnout.models.random.random_weights import write_random_checkpoint
from turnout.models.random.shapes import Shape, config_of
from turnout.runner.assembly import build_engine

SHAPE = Shape(hidden=64, layers=4, heads=4, kv_heads=2, intermediate=96, vocab=512, max_positions=512)
WINDOWS = {"use_sliding_window": True, "sliding_window": 24, "max_window_layers": 1}
"""The first layer sees all, the other three forget."""


class Counting(Watched):
    """Notes before each step what the KV memory holds."""

    kv: Any

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.pages: list[dict[str, Any]] = []

    def run(self, plan: Plan) -> Logits:
        self.pages.append(msgspec.to_builtins(self.kv.snapshot()))
        return super().run(plan)


@pytest.mark.parametrize("options", [{}, {"swap_memory": 2**18, "preemption": "swap"}], ids=str)
def test_pages_are_those_of_the_engine_with_its_model(options: dict[str, Any], tmp_path: Path) -> None:
    write_random_checkpoint(tmp_path, {**config_of(SHAPE, "qwen2"), **WINDOWS})
    config = EngineConfig(
        model=str(tmp_path),
        **{"strict_plugins": True, "dtype": "float32", "block_size": 16, "kv_memory": 2**18},
        **{"max_model_len": 256, "max_num_batched_tokens": 64, "max_num_seqs": 8, **options},
    )
    clock = VirtualClock()
    real = build_engine(config, clock=clock)
    served = real.engine.runner = Counting(real.engine.runner, clock)
    served.queues, served.kv = real.engine.scheduler.queues, real.engine.scheduler.kv
    serve(real.engine, clock, arrivals(WORK, real.spec.vocab_size))

    cost = CostModel(name="", device="cpu", kv_memory=1, itemsize=4, model=real.spec, seconds=SECONDS)
    simulated = build_simulated(config, cost, Registry.load())
    played = simulated.engine.runner = Counting(simulated.runner)
    played.kv = simulated.engine.scheduler.kv
    serve(simulated.engine, simulated.clock, arrivals(WORK, real.spec.vocab_size))

    assert played.plans == served.plans
    assert played.pages == served.pages
    whole, *windowed = zip(*(each["groups"] for each in served.pages), strict=True)
    assert windowed and sum(state["held"] for state in windowed[0]) < sum(state["held"] for state in whole)
    assert real.engine.stats().preemptions
