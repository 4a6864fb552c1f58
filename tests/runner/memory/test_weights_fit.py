"""Weights that cannot fit are refused with the sums, before the system kills a process for them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from turnout.core.engine.engine import Engine
from turnout.core.errors import ConfigError


@pytest.fixture
def short_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnout.runner.weights.free_memory", lambda device: 100_000)


@pytest.mark.parametrize("kernels", ["auto", "torch"])
def test_the_sums_are_told(make_engine: Callable[..., Engine], short_of_memory: None, kernels: str) -> None:
    told = r"the weights take \d+ KiB in float32, but cpu has 97.7 KiB free; take a smaller model, --quant"
    with pytest.raises(ConfigError, match=told):
        make_engine(cpu_kernels=kernels)


def test_quantized_ones_may_fit(make_engine: Callable[..., Engine], short_of_memory: None) -> None:
    make_engine(quantization="int8")
