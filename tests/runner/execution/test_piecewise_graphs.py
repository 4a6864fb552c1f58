"""Steps cut at attention: what is recorded and replayed, on which memory, and for which tokens."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from driving import run
from replaying import Recorder
from torch import Tensor

from turnout.core.interfaces.attention import Attend, AttentionCapabilities, rotates
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.runner.execution.model_runner import ModelRunner
from turnout.runner.execution.piecewise_graphs import MAX_TOKENS, PiecewiseGraphs, padded_tokens

CPU = torch.device("cpu")


def forward(tokens: Tensor, positions: Tensor, attend: Attend) -> Tensor:
    """Two layers of one head, of what is told apart: tokens, positions and what attention gave."""
    x = torch.stack([tokens, positions], dim=1).double()[:, None]
    for layer in range(2):
        cos, sin = positions.double()[:, None, None], tokens.double()[:, None, None]
        if rotates(attend):
            x = x + attend.rotating(layer, x + 1, x + 2, x + 3, cos, sin)
        else:
            x = x + attend(layer, x + 1, x + 2, x + 3)
    return x[:, 0]


class Attention:
    """Adds up what it is given, of as many tokens as there really are."""

    def __init__(self, *expected: int) -> None:
        self.expected = expected

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        assert len(q) == len(k) == len(v) == len(self.expected)
        return (layer + 1) * (q + 10 * k + 100 * v)


class Rotating(Attention):
    capabilities = AttentionCapabilities(rotates=True)

    def rotating(self, layer: int, q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        assert sin[:, 0, 0].tolist() == list(self.expected)
        out = self(layer, q, k, v) + cos - sin
        q.zero_()  # as it may
        return out


def inputs(*tokens: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array([tokens, range(50, 50 + len(tokens))])


@pytest.mark.parametrize("kind", [Attention, Rotating])
def test_each_step_is_what_the_forward_would_have_been(kind: type[Attention]) -> None:
    recorder = Recorder()
    pieces = PiecewiseGraphs(forward, CPU, recorder)
    rng = random.Random(0)
    for turn, count in enumerate([5, 16, 3, 16, 1, 20, 30, 7, 32, 11]):
        given = inputs(*(rng.randrange(9) for _ in range(count)))
        attention = kind(*given[0])
        right = forward(torch.tensor(given[0]), torch.tensor(given[1]), attention)
        assert pieces.run(attention, given).equal(right), f"turn {turn}, {count} tokens"
    assert recorder.cuts == 2
    assert recorder.pieces == 3 * 8  # all but the first of either size


def test_tokens_that_the_host_does_not_know_are_looked_up() -> None:
    pieces = PiecewiseGraphs(forward, CPU, Recorder())
    chosen = (torch.tensor([8, 9]),)
    for _ in range(3):
        right = forward(torch.tensor([7, 9, 8]), torch.tensor([50, 51, 52]), Attention(7, 9, 8))
        assert pieces.run(Attention(7, 9, 8), inputs(7, -2, -1), chosen).equal(right)


def test_sizes_are_few_and_pad_little() -> None:
    sizes = {padded_tokens(count) for count in range(1, MAX_TOKENS + 1)}
    assert len(sizes) == 16 and max(sizes) == MAX_TOKENS
    for count in range(1, MAX_TOKENS + 1):
        assert count <= padded_tokens(count) < max(count + 16, 1.25 * count)


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"kv": "contiguous"}, marks=pytest.mark.slow),
        {"async_scheduling": True},
        {"spec_ngram": True},
        pytest.param({"quantization": "int8"}, marks=pytest.mark.slow),
        {"tokens": 400, "swap_memory": "4MiB", "preemption": "swap"},
    ],
    ids=lambda options: ",".join(f"{name}={value}" for name, value in options.items()) or "plain",
)
def test_tokens_are_the_same_whatever_else_is_on(options: dict[str, Any], make_engine) -> None:
    rng = random.Random(1)
    specs = [
        RequestSpec(
            id=str(number),
            prompt=[rng.randrange(160) for _ in range(rng.randrange(1, 90))],
            params=SamplingParams(max_tokens=12, n=1 + number % 2, temperature=number % 3 / 2),
            seed=number,
        )
        for number in range(12)
    ]
    options = {"cpu_kernels": "torch", "max_num_batched_tokens": 40, **options}
    engine, recorder = make_engine(**options), Recorder()
    plain = run(engine, specs)
    runner = engine.runner
    assert isinstance(runner, ModelRunner)
    engine.runner = ModelRunner(runner.model, runner.attention, CPU, recorder)
    specs = [RequestSpec(id=f"again {s.id}", prompt=s.prompt, params=s.params, seed=s.seed) for s in specs]
    found = run(engine, specs)
    assert {(name.removeprefix("again "), index): found[name, index] for name, index in found} == plain
    assert 0 < recorder.cuts < 5 and recorder.pieces > 6 * recorder.cuts
