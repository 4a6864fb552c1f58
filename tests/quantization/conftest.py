"""Small linear layers, models with random weights, and what they give in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from turnout.models.random_weights import write_random_checkpoint
from turnout.models.shapes import Shape, config_of


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that wait for each other cost far more than matrices of this size."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


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


@pytest.fixture(scope="session")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("random-model")
    shape = Shape(64, 2, 4, 2, 96, 160, max_positions=512, theta=10_000.0)
    write_random_checkpoint(folder, config_of(shape, "qwen2", dtype="float32"), seed=5)
    return folder
