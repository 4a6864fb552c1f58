"""Products of experts equal those of each expert by itself, and a row's bits do not depend on the others."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear

from turnout.kernels.gpu import experts as module
from turnout.kernels.gpu.experts import ExpertProducts, SortedPairs, add_up, tile_of
from turnout.kernels.gpu.rounding import quantize
from turnout.kernels.gpu.weights import DeviceWeights
from turnout.plugins.quantization.gpu.factory import GpuLayerFactory
from turnout.plugins.quantization.schemes import encoding

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2**-7, torch.float16: 2**-10}


def draw(*shape: int, seed: int, device: torch.device) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device)


def chosen_of(tokens: int, experts: int, top: int, device: torch.device) -> Tensor:
    """The last expert is chosen by none, the first by all."""
    scores = draw(tokens, experts, seed=3, device=device)
    scores[:, -1], scores[:, 0] = -9.0, 9.0
    return scores.topk(top).indices


def experts_of(
    kind: str, count: int, outputs: int, inputs: int, bias: bool, dtype: torch.dtype, device: torch.device
) -> tuple[list[DeviceWeights], list[Tensor]]:
    """The experts, and the weights that they stand for."""
    made, exact = [], []
    for seed in range(count):
        weight = draw(outputs, inputs, seed=seed, device=device) * inputs**-0.5
        own = draw(outputs, seed=50 + seed, device=device).to(dtype) if bias else None
        if kind == "floats":
            made.append(DeviceWeights(weight.to(dtype), None, own))
            exact.append(weight.to(dtype).float())
        elif kind == "int4":
            four = encoding.to_int4(weight, 32)
            offset = (8 - four.zero.float()) * four.scale
            layer = GpuLayerFactory.int4(four.codes, four.scale, offset, own, None)
            made.append(layer.device_weights)
            groups = (four.codes.float() - 8).view(outputs, -1, 32) * four.scale[..., None]
            exact.append((groups + offset[..., None]).flatten(1))
        else:
            codes, scale = quantize(weight, "fp8" if kind == "fp8" else "int8")
            made.append(DeviceWeights(codes, scale, own, codes=kind == "both", floats=kind == "fp8"))
            numbers = codes.view(torch.float8_e4m3fn) if kind == "fp8" else codes
            exact.append(numbers.float() * scale[:, None])
    return made, exact


@pytest.mark.parametrize(
    ("kind", "bias", "dtype"),
    [
        ("floats", True, torch.float32),
        ("floats", False, torch.bfloat16),
        pytest.param("int8", True, torch.bfloat16, marks=pytest.mark.slow),
        pytest.param("both", False, torch.bfloat16, marks=pytest.mark.slow),
        ("int4", True, torch.float32),
        pytest.param("fp8", False, torch.float32, marks=pytest.mark.slow),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("tokens", "experts", "top", "outputs", "inputs"), [(1, 5, 2, 40, 64), (70, 3, 2, 70, 64)]
)
def test_products(
    tokens: int, experts: int, top: int, outputs: int, inputs: int, kind, bias, dtype, device: torch.device
) -> None:
    """From a row for each token to one for each sorted pair, and from those back to the old order."""
    chosen = chosen_of(tokens, experts, top, device)
    pairs = SortedPairs(chosen, experts, dtype)
    x = draw(tokens, inputs, seed=9, device=device).to(dtype)
    made, exact = experts_of(kind, experts, outputs, inputs, bias, dtype, device)
    products = ExpertProducts(made)
    read = x.float()
    if kind == "both":
        codes, scale = quantize(x, "int8")
        read = codes.float() * scale[:, None]
    flat = chosen.flatten()
    expected = torch.stack(
        [
            linear(read[pair // top], exact[expert], None if not bias else made[expert].bias.float())
            for pair, expert in enumerate(flat.tolist())
        ]
    )
    bound = TOLERANCE[dtype] * float(expected.abs().max())
    gathered = products(x, pairs, gather=True)
    assert gathered.dtype == dtype
    assert float((gathered.float() - expected[pairs.order]).abs().max()) <= bound
    scattered = products(x[pairs.order // top], pairs, gather=False)
    assert float((scattered.float() - expected).abs().max()) <= bound
    assert torch.equal(scattered[pairs.order], gathered)


@pytest.mark.usefixtures("products_in_order")
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("floats", torch.float32),
        ("int8", torch.bfloat16),
        ("both", torch.bfloat16),
        ("int4", torch.float32),
        ("fp8", torch.bfloat16),
        pytest.param("floats", torch.bfloat16, marks=pytest.mark.slow),
        pytest.param("int8", torch.float32, marks=pytest.mark.slow),
        pytest.param("both", torch.float32, marks=pytest.mark.slow),
        pytest.param("int4", torch.bfloat16, marks=pytest.mark.slow),
        pytest.param("fp8", torch.float32, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("tokens", [70, pytest.param(200, marks=pytest.mark.slow)])
def test_a_token_alone_has_the_bits_that_it_has_among_others(
    tokens: int, kind: str, dtype: torch.dtype, device: torch.device
) -> None:
    """Who is in a tile, and how large it is, changes none."""
    chosen = chosen_of(tokens, 3, 2, device)
    products = ExpertProducts(experts_of(kind, 3, 32, 192, True, dtype, device)[0])
    x = draw(tokens, 192, seed=9, device=device).to(dtype)
    pairs = SortedPairs(chosen, 3, dtype, tall=products.tall)
    together = torch.empty(2 * tokens, 32, device=device, dtype=dtype)
    together[pairs.order] = products(x, pairs, gather=True)
    for token in (0, 33, 69):
        own = SortedPairs(chosen[token : token + 1], 3, dtype)
        alone = products(x[token : token + 1], own, gather=True)
        assert torch.equal(alone, together[2 * token + own.order])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weighted_sums(dtype: torch.dtype, device: torch.device) -> None:
    parts, weights = draw(3 * 4, 100, seed=1, device=device).to(dtype), draw(3, 4, seed=2, device=device)
    expected = (parts.double().view(3, 4, 100) * weights[..., None].double()).sum(1)
    found = add_up(parts, weights)
    assert found.dtype == dtype
    bound = TOLERANCE[dtype] * float(expected.abs().max())
    assert float((found.double() - expected).abs().max()) <= bound


def test_experts_of_several_kinds_are_none(device: torch.device) -> None:
    floats = DeviceWeights(torch.zeros(4, 4, device=device), None, None)
    assert ExpertProducts.of([floats, floats]) is not None
    assert ExpertProducts.of([floats, floats._replace(bias=torch.zeros(4, device=device))]) is None
    assert ExpertProducts.of([floats._replace(numbers=torch.zeros(4, 4, device=device).t()[::2])]) is None


CPU = torch.device("cpu")


def test_tiles_grow_with_the_pairs_of_an_expert() -> None:
    sizes = (8, 64, 512, 1024, 10_000)
    assert [tile_of(pairs, 8, torch.bfloat16, CPU) for pairs in sizes] == [
        module.SHORT, module.SHORT, module.USUAL, module.USUAL, module.TALL
    ]  # fmt: skip
    assert tile_of(10_000, 8, torch.bfloat16, CPU, tall=False) == module.USUAL
    assert tile_of(10_000, 8, torch.float32, CPU) == module.EXACT
