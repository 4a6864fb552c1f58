"""Small linear layers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn


@pytest.fixture(scope="session", autouse=True)
def _on_one_thread(one_thread: None) -> None:
    """All of them."""


@pytest.fixture
def linear() -> Callable[..., nn.Linear]:
    """linear(width, outputs, bias=…, seed=…): weights like a trained layer's, a few rows with outliers."""

    def make(width: int = 256, outputs: int = 96, *, bias: bool = False, seed: int = 0) -> nn.Linear:
        generator = torch.Generator().manual_seed(seed)
        made = nn.Linear(width, outputs, bias=bias).requires_grad_(False)
        made.weight.normal_(std=width**-0.5, generator=generator)
        made.weight[::7, ::31] *= 8
        if bias:
            made.bias.normal_(generator=generator)
        return made

    return make
