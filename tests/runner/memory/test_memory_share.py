"""Several engines on one machine each take their share of what one would take alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from turnout.config import EngineConfig
from turnout.core.errors import ConfigError
from turnout.core.types.model_spec import ModelSpec
from turnout.runner.memory.budget import CPU_DEFAULT, Budget
from turnout.runner.memory.swap_memory import SwapMemory

GIB = 2**30


def budget(device: str, spec: ModelSpec | None = None, **options: Any) -> Budget:
    return Budget(
        config=EngineConfig(**options),
        spec=spec,  # type: ignore[arg-type]  # only a GPU's workspace asks for it
        device=torch.device(device),
        bytes_per_token=1024,
        unit=16,
        request_tokens=2**20,
        max_model_len=2**20,
        max_batched_tokens=512,
        rows=1,
    )


@pytest.mark.parametrize(("share", "pool"), [(1.0, 3 * GIB), (0.5, 1.5 * GIB), (0.25, 0.75 * GIB)])
def test_on_a_cpu(share: float, pool: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnout.runner.memory.budget.free_memory", lambda device: 6 * GIB)
    assert budget("cpu", memory_share=share).tokens() == int(pool) // 1024


def test_plenty_is_no_more_than_one_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnout.runner.memory.budget.free_memory", lambda device: 100 * GIB)
    assert budget("cpu", memory_share=0.5).tokens() == CPU_DEFAULT // 1024


def test_on_a_gpu_what_others_have_taken_is_not_counted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """80 GiB, of which 36 are another engine's, and 4 of weights are ours."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (40 * GIB, 80 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 4 * GIB)
    for part in ("_logits", "_activations"):
        monkeypatch.setattr(Budget, part, lambda self: 0)
    alone = budget("cuda", gpu_memory_utilization=0.9)
    assert alone.tokens() == 32 * GIB // 1024
    half = budget("cuda", gpu_memory_utilization=0.9, memory_share=0.5)
    assert half.tokens() == 32 * GIB // 1024, "36 of the 72 are ours, with the weights"
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10 * GIB, 80 * GIB))
    assert half.tokens() == 10 * GIB // 1024, "and never more than is free"


def test_memory_for_swapping_is_shared_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnout.runner.memory.swap_memory.free_host_memory", lambda: 6 * GIB)
    assert SwapMemory(budget("cuda", memory_share=0.5)).positions(0) == int(1.5 * GIB) // 1024


def test_what_is_given_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnout.runner.memory.budget.free_memory", lambda device: 6 * GIB)
    assert budget("cpu", memory_share=0.1, kv_memory=5 * GIB).tokens() == 5 * GIB // 1024
    with pytest.raises(ConfigError, match="memory_share"):
        EngineConfig(memory_share=0)
