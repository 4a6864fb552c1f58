"""Norms, gates and rotations equal the textbook's in float64, whatever the shapes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from turnout.kernels.gpu.layers import GpuKernels
from turnout.models.decoder.rope import Rotation

TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 2**-6, torch.float16: 2**-9}
"""Twice a rounding, as PyTorch's layers round twice, too."""

KERNELS = GpuKernels()


def draw(*shape: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(device, dtype)


def same(found: Tensor, expected: Tensor) -> None:
    tolerance = TOLERANCE[found.dtype]
    torch.testing.assert_close(found.double(), expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("rows", "size"), [(1, 64), (3, 100), (5, 1536)])
def test_norm_with_residual(dtype: torch.dtype, rows: int, size: int, device: torch.device) -> None:
    x, delta = draw(2, rows, size, dtype=dtype, device=device)
    weight = draw(size, dtype=dtype, device=device)
    total = (x + delta).double()
    expected = total * torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + 1e-6) * weight.double()
    found = KERNELS.norm(x, delta, weight, 1e-6)
    same(found, expected)
    same(x, total)


def test_norm_of_a_row_of_zeros_without_residual(device: torch.device) -> None:
    x = torch.zeros(2, 48, device=device)
    assert KERNELS.norm(x, None, torch.ones(48, device=device), 1e-6).equal(x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("rows", "size"), [(1, 16), (3, 100), (2, 2500)])
def test_gate(dtype: torch.dtype, rows: int, size: int, device: torch.device) -> None:
    both = draw(rows, 2 * size, dtype=dtype, device=device) * 4
    gate, up = both.double().chunk(2, dim=-1)
    same(KERNELS.gate(both), gate * gate.sigmoid() * up)


def test_a_gate_far_from_zero_overflows_nothing(device: torch.device) -> None:
    both = torch.tensor([[-80.0, 80.0, 1.0, 1.0]], device=device)
    assert KERNELS.gate(both).tolist() == [[pytest.approx(0, abs=1e-30), 80.0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("heads", "dim"), [(1, 64), (7, 96), (3, 128), (2, 256)])
def test_rotation(dtype: torch.dtype, heads: int, dim: int, device: torch.device) -> None:
    """In place, and of heads that lie between others."""
    tokens = 3
    angles = draw(tokens, 1, dim // 2, dtype=torch.float32, device=device).repeat(1, 1, 2)
    rotation = Rotation(angles.cos().to(dtype), angles.sin().to(dtype))
    wide = draw(tokens, heads + 2, dim, dtype=dtype, device=device)
    before = wide.double()
    KERNELS.rotate(wide[:, 1:-1], *rotation)
    expected = Rotation(rotation.cos.double(), rotation.sin.double()).apply(before[:, 1:-1])
    same(wide[:, 1:-1], expected)
    assert wide[:, 0].double().equal(before[:, 0]) and wide[:, -1].double().equal(before[:, -1])
