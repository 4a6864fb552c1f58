"""What is written to the pool is what its storage would have written, of keys rotated as in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from turnout.models.decoder.rope import Rotation
from turnout.plugins.kv_backends.paged.device.kernel_attention import lanes_of
from turnout.plugins.kv_backends.paged.device.kernels.lanes import Lanes
from turnout.plugins.kv_backends.paged.device.kernels.rotated_write import rotated_write
from turnout.plugins.kv_backends.storage.dtypes import KVDtype
from turnout.plugins.kv_backends.storage.pool import make_storage
from turnout.plugins.kv_backends.storage.tensors import PoolShape, Storage

SLOTS = [5, -1, 9, 2]
"""The second token belongs to no sequence."""
REAL = [0, 2, 3]


def pool(stored: KVDtype, kv_heads: int, dim: int, dtype: torch.dtype, device: torch.device) -> Storage:
    return make_storage(stored, PoolShape(2, 12, kv_heads, dim, dim), device, dtype)


def draw(heads: int, dim: int, dtype: torch.dtype, device: torch.device, seed: int) -> Tensor:
    """Of many sizes, and one vector of zeros; between the heads of others."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(len(SLOTS), heads + 1, dim, generator=generator)
    drawn *= 10 ** (4 * torch.rand(len(SLOTS), heads + 1, 1, generator=generator) - 2)
    drawn[-1, 0] = 0
    return drawn.to(device, dtype)[:, :heads]


@pytest.mark.parametrize("stored", ["auto", "bfloat16", "int8", "fp8"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_written_as_the_storage_writes(stored: KVDtype, dtype: torch.dtype, device: torch.device) -> None:
    """Bit for bit, where nothing is rotated."""
    ours, theirs = (pool(stored, 3, 64, dtype, device) for _ in range(2))
    k, v = (draw(3, 64, dtype, device, seed) for seed in (1, 2))
    q = draw(6, 64, dtype, device, 3)
    rotated_write(q, k, v, torch.tensor(SLOTS, device=device), lanes_of(ours.tensors, 1, stored))
    where = torch.tensor([SLOTS[n] for n in REAL], device=device)
    theirs.write(1, where, k[REAL].contiguous(), v[REAL].contiguous())
    for one, other in zip(ours.tensors, theirs.tensors, strict=True):
        assert one.equal(other)


@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(2, 2, 64), (7, 1, 96), (6, 3, 128), (8, 1, 256)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.bfloat16, 2**-7)])
def test_rotated_on_the_way(
    heads: int, kv_heads: int, dim: int, dtype: torch.dtype, tolerance: float, device: torch.device
) -> None:
    storage = pool("auto", kv_heads, dim, dtype, device)
    q, k, v = (draw(count, dim, dtype, device, dim + count) for count in (heads, kv_heads, kv_heads))
    angles = torch.randn(len(SLOTS), 1, dim // 2).repeat(1, 1, 2).to(device)
    rotation = Rotation(angles.cos().to(dtype), angles.sin().to(dtype))
    exact = Rotation(rotation.cos.double(), rotation.sin.double())
    expected_q, expected_k = exact.apply(q.double())[REAL], exact.apply(k.double())[REAL]
    rotated_write(q, k, v, torch.tensor(SLOTS, device=device), lanes_of(storage.tensors, 0, "auto"), rotation)
    found_k, found_v = (tensor[0, [SLOTS[n] for n in REAL]] for tensor in storage.tensors)
    scale = expected_k.abs().amax() * tolerance
    assert (found_k.double() - expected_k).abs().max() <= scale
    assert (q[REAL].double() - expected_q).abs().max() <= expected_q.abs().amax() * tolerance
    assert found_v.equal(v[REAL])


@pytest.mark.parametrize("stored", ["int8", "fp8"])
def test_rotated_into_eight_bits(stored: KVDtype, device: torch.device) -> None:
    """What is read back is the rotated key, but for half a step of its codes."""
    storage = pool(stored, 2, 64, torch.float32, device)
    q, k, v = (draw(2, 64, torch.float32, device, seed) for seed in (4, 5, 6))
    angles = torch.randn(len(SLOTS), 1, 32).repeat(1, 1, 2).to(device)
    rotation = Rotation(angles.cos(), angles.sin())
    expected = rotation.apply(k)[REAL]
    rotated_write(q, k, v, torch.tensor(SLOTS, device=device), lanes_of(storage.tensors, 0, stored), rotation)
    found, _ = storage.read(0, torch.tensor([SLOTS[n] for n in REAL], device=device))
    step = {"int8": 1 / 254, "fp8": 1 / 16}[stored]
    largest = expected.abs().amax(-1, keepdim=True)
    assert ((found - expected).abs() <= largest * step * 1.01).all()


def test_every_number_that_e4m3_has_is_encoded_as_itself(device: torch.device) -> None:
    """And what lies between two of them as PyTorch rounds it."""
    codes = torch.arange(256, dtype=torch.int64).to(torch.uint8).view(torch.float8_e4m3fn).float()
    exact = codes[codes.isfinite()].sort().values
    between = torch.cat([exact, (exact[1:] + exact[:-1]) / 2, exact[1:] * 0.999]).clamp(-448, 448)
    vectors = torch.nn.functional.pad(between, (0, -len(between) % 62)).view(-1, 62)
    vectors = torch.cat([vectors, torch.full((len(vectors), 2), 448.0)], dim=1)[:, None].to(device)
    storage = make_storage("fp8", PoolShape(1, len(vectors), 1, 64, 64), device, torch.float32)
    slots = torch.arange(len(vectors), device=device)
    lanes: Lanes = lanes_of(storage.tensors, 0, "fp8")
    rotated_write(vectors, vectors, vectors, slots, lanes)
    expected = vectors.to(torch.float8_e4m3fn).view(torch.int8)
    assert lanes.k.equal(expected) and lanes.v.equal(expected)
