"""Top-k and top-p by bisection keep the tokens that sorting keeps."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from turnout.core.types.sampling_params import SamplingParams
from turnout.sampling import distributions as distribution
from turnout.sampling.distributions import truncate_by_kernel, truncate_by_sorting

PARAMS = [
    SamplingParams(top_k=1),
    SamplingParams(top_k=7),
    SamplingParams(top_k=150),
    SamplingParams(top_p=0.3),
    SamplingParams(top_p=0.95),
    SamplingParams(top_p=1e-9),
    SamplingParams(top_k=20, top_p=0.5),
    SamplingParams(top_k=400, top_p=0.9),
    SamplingParams(top_k=999_999, top_p=0.999),
]
FEW = [PARAMS[2], PARAMS[4], PARAMS[6]]
"""Of each kind one: the interpreter takes seconds for a row."""


@pytest.fixture(params=[FEW, pytest.param(PARAMS, marks=pytest.mark.slow)], ids=["few", "all"])
def params(request: pytest.FixtureRequest) -> list[SamplingParams]:
    found: list[SamplingParams] = request.param
    return found


def check(weights: Tensor, params: list[SamplingParams]) -> None:
    found = truncate_by_kernel(weights, params)
    assert found.equal(truncate_by_sorting(weights, params))
    assert (found > 0).any(dim=1).all()


@pytest.mark.parametrize("vocabulary", [13, 4500])
def test_the_same_tokens(vocabulary: int, params: list[SamplingParams], device: torch.device) -> None:
    """Fewer than `top_k` would leave, and more than a program reads at a time."""
    logits = torch.randn(len(params), vocabulary, generator=torch.Generator().manual_seed(vocabulary)) * 3
    check((logits - logits.amax(1, keepdim=True)).exp().to(device), params)


def test_of_equals_the_lower_ids(params: list[SamplingParams], device: torch.device) -> None:
    """Weights are few powers of two, so that sums are exact in whatever order."""
    draw = torch.Generator().manual_seed(0)
    check(2.0 ** -torch.randint(0, 4, (len(params), 700), generator=draw).float().to(device), params)
    check(torch.ones(len(params), 300, device=device), params)


def test_one_token_that_has_all_the_weight(params: list[SamplingParams], device: torch.device) -> None:
    weights = torch.zeros(len(params), 50, device=device)
    weights[:, 31] = 1
    check(weights, params)


def test_a_row_does_not_depend_on_those_beside_it(device: torch.device) -> None:
    each = [SamplingParams(top_k=7), SamplingParams(top_p=0.95), SamplingParams(top_k=150, top_p=0.9)]
    weights = torch.rand(len(each), 300, generator=torch.Generator().manual_seed(1)).to(device)
    together = truncate_by_kernel(weights, each)
    for row, params in enumerate(each):
        assert truncate_by_kernel(weights[row : row + 1], [params]).equal(together[row : row + 1])


def test_a_cpu_sorts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distribution, "truncate_by_kernel", None)
    assert distribution.token_weights(torch.zeros(1, 4), [SamplingParams(top_k=2)]).tolist() == [[1, 1, 0, 0]]
