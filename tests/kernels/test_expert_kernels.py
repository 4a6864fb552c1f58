"""The native experts compute the weighted sums of the gated MLPs that were chosen, and a row's bits do not
depend on the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear, silu

from turnout.kernels import CpuKernels
from turnout.kernels.experts import Bounds, ExpertWeights, NativeExperts
from turnout.kernels.integers import Precision
from turnout.kernels.linears import FloatWeights, LinearWeights

EXPERTS, TOP, SIZE, INNER = 6, 2, 96, 72
Pack = Callable[[Tensor, Tensor | None], LinearWeights]


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def weights_of(dtype: torch.dtype, biased: bool) -> list[tuple[Tensor, Tensor | None, Tensor, Tensor | None]]:
    """Of each expert: gate and up side by side, their bias, down, and its bias."""

    def bias(size: int, seed: int) -> Tensor | None:
        return normal(size, seed=seed).to(dtype) if biased else None

    return [
        (
            (normal(2 * INNER, SIZE, seed=e) * SIZE**-0.5).to(dtype),
            bias(2 * INNER, 50 + e),
            (normal(SIZE, INNER, seed=100 + e) * INNER**-0.5).to(dtype),
            bias(SIZE, 150 + e),
        )
        for e in range(EXPERTS)
    ]


def chosen_of(tokens: int) -> tuple[Tensor, Tensor]:
    """Experts of each token, the last of them never, and their weights."""
    scores = normal(tokens, EXPERTS, seed=7)
    scores[:, -1] = -9.0
    weights, chosen = scores.softmax(-1).topk(TOP)
    return chosen, weights


def reference(x: Tensor, experts: list, chosen: Tensor, weights: Tensor, gate: Bounds | None) -> Tensor:
    out = torch.zeros(*x.shape, dtype=torch.float64)
    for token in range(len(x)):
        for number, weight in zip(chosen[token].tolist(), weights[token].tolist(), strict=True):
            gate_up, bias, down, last = (None if each is None else each.double() for each in experts[number])
            opened, up = linear(x[token].double(), gate_up, bias).chunk(2)
            if gate is None:
                inner = silu(opened) * up
            else:
                opened = opened.clamp(max=gate.limit)
                inner = (up.clamp(-gate.limit, gate.limit) + 1) * opened * torch.sigmoid(opened * gate.slope)
            out[token] += weight * linear(inner, down, last)
    return out


def close(found: Tensor, expected: Tensor, bound: float) -> bool:
    return float((found.double() - expected).abs().max()) <= bound * float(expected.abs().max())


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 2**-6)], ids=str)
@pytest.mark.parametrize("gate", [None, Bounds(1.702, 1.0)], ids=["silu", "bounded"])
@pytest.mark.parametrize("tokens", [1, 3, 700])
def test_floats(tokens: int, gate: Bounds | None, dtype, bound, variant_kernels: CpuKernels) -> None:
    experts = weights_of(dtype, biased=gate is not None)
    packed = [
        ExpertWeights(FloatWeights(variant_kernels.pack([a]), b), FloatWeights(variant_kernels.pack([c]), d))
        for a, b, c, d in experts
    ]
    x, (chosen, weights) = normal(tokens, SIZE, seed=9).to(dtype), chosen_of(tokens)
    native = NativeExperts(variant_kernels, packed, gate)
    found = native(x, chosen, weights)
    assert found.dtype == dtype
    assert close(found, reference(x, experts, chosen, weights, gate), bound)
    alone = torch.cat([native(x[i : i + 1], chosen[i : i + 1], weights[i : i + 1]) for i in range(tokens)])
    assert torch.equal(found, alone)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("at", [3, INNER + 3], ids=["gate", "up"])
def test_bounds_do_not_hide_what_is_no_number(
    at: int, dtype: torch.dtype, variant_kernels: CpuKernels
) -> None:
    """An `up` of NaN became the least that there may be."""
    (gate_up, _, down, _), *_ = weights_of(dtype, biased=False)
    bias = torch.zeros(2 * INNER, dtype=dtype)
    bias[at] = torch.nan
    pack = variant_kernels.pack
    expert = ExpertWeights(FloatWeights(pack([gate_up]), bias), FloatWeights(pack([down]), None))
    native = NativeExperts(variant_kernels, [expert], Bounds(1.702, 7.0))
    found = native(normal(3, SIZE, seed=9).to(dtype), torch.zeros(3, 1, dtype=torch.int64), torch.ones(3, 1))
    assert found.isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("precision", Precision)
def test_few_bits(precision: Precision, dtype: torch.dtype, variant_kernels: CpuKernels) -> None:
    integers = variant_kernels.integers
    low, high = (0, 16) if precision is Precision.W4A16 else (-127, 128)
    center = 8 if precision is Precision.W4A16 else 0

    def quantized(outputs: int, inputs: int, seed: int) -> tuple[Tensor, LinearWeights]:
        codes = torch.randint(low, high, (outputs, inputs), generator=torch.Generator().manual_seed(seed))
        scale = (normal(outputs, 1, seed=seed).abs() + 0.1).bfloat16().float() / (high * inputs**0.5)
        scale = scale.bfloat16().float()
        kind = torch.uint8 if precision is Precision.W4A16 else torch.int8
        offset = torch.zeros_like(scale) if precision is Precision.W4A16 else None
        return (codes - center) * scale, integers.pack(precision, codes.to(kind), scale, offset, None)

    made = [(quantized(2 * INNER, SIZE, e), quantized(SIZE, INNER, 100 + e)) for e in range(EXPERTS)]
    native = NativeExperts(variant_kernels, [ExpertWeights(a[1], b[1]) for a, b in made])
    x, (chosen, weights) = normal(40, SIZE, seed=9).to(dtype), chosen_of(40)
    expected = reference(x, [(a[0], None, b[0], None) for a, b in made], chosen, weights, None)
    found = native(x, chosen, weights)
    assert close(found, expected, 2**-4)
    alone = torch.cat([native(x[i : i + 1], chosen[i : i + 1], weights[i : i + 1]) for i in range(40)])
    assert torch.equal(found, alone)


def test_any_number_of_threads(variant_kernels: CpuKernels, monkeypatch: pytest.MonkeyPatch) -> None:
    experts = weights_of(torch.float32, biased=False)
    packed = [
        ExpertWeights(
            FloatWeights(variant_kernels.pack([a]), None), FloatWeights(variant_kernels.pack([c]), None)
        )
        for a, _, c, _ in experts
    ]
    x, (chosen, weights) = normal(600, SIZE, seed=9), chosen_of(600)
    native, results = NativeExperts(variant_kernels, packed), []
    for threads in (1, 2, 3):
        monkeypatch.setattr("turnout.kernels.experts.kernel_threads", lambda threads=threads: threads)
        results.append(native(x, chosen, weights))
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("experts", [2, 6, 60, 128])
@pytest.mark.parametrize("normalized", [True, False], ids=["of those", "of all"])
def test_a_token_goes_to_the_likeliest(
    normalized: bool, experts: int, dtype: torch.dtype, variant_kernels: CpuKernels
) -> None:
    tokens, top = 400, min(experts, 8)
    scores = (3 * normal(tokens, experts, seed=experts)).to(dtype)
    chosen, weights = variant_kernels.route(scores, top, normalized=normalized)
    order = scores.double().argsort(dim=1, descending=True, stable=True)
    assert torch.equal(chosen, order[:, :top])
    expected = scores.double().softmax(1).gather(1, chosen)
    if normalized:
        expected /= expected.sum(1, keepdim=True)
    torch.testing.assert_close(weights.double(), expected, rtol=1e-5, atol=0.0)
    one_by_one = [variant_kernels.route(row[None], top, normalized=normalized) for row in scores]
    assert torch.equal(torch.cat([each for each, _ in one_by_one]), chosen)
    assert torch.equal(torch.cat([each for _, each in one_by_one]), weights)


def test_of_equal_scores_the_first_experts_are_taken(variant_kernels: CpuKernels) -> None:
    scores = torch.tensor([[1.0, 2.0, 2.0, 1.0, 2.0, 1.0], [0.0] * 6])
    chosen, weights = variant_kernels.route(scores, 4, normalized=True)
    assert chosen.tolist() == [[1, 2, 4, 0], [0, 1, 2, 3]]
    assert weights[1].tolist() == [0.25] * 4


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_scores_that_are_no_numbers_make_no_expert_up(broken: float, variant_kernels: CpuKernels) -> None:
    """What comes of such a token is no number either; the token beside it has what it would have had."""
    scores = torch.stack([torch.full((EXPERTS,), broken), normal(EXPERTS, seed=3)])
    chosen, weights = variant_kernels.route(scores, TOP, normalized=True)
    assert set(chosen[0].tolist()) <= set(range(EXPERTS)) and len(set(chosen[0].tolist())) == TOP
    assert weights[0].isnan().all()
    alone, its_weights = variant_kernels.route(scores[1:], TOP, normalized=True)
    assert torch.equal(chosen[1:], alone) and torch.equal(weights[1:], its_weights)
