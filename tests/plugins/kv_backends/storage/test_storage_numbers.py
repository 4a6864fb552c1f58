"""What is written comes back within the bounds that the docs state, whatever order it was written in."""

from __future__ import annotations

from typing import get_args

import pytest
import torch
from torch import Tensor

from turnout.core.errors import ConfigError
from turnout.models.families.qwen2 import Qwen2
from turnout.models.random.shapes import Shape, config_of
from turnout.plugins.kv_backends.contiguous.backend import Contiguous
from turnout.plugins.kv_backends.paged.backend import Paged
from turnout.plugins.kv_backends.storage.dtypes import KVDtype
from turnout.plugins.kv_backends.storage.pool import make_storage
from turnout.plugins.kv_backends.storage.scaled import Fp8Storage, Int8Storage
from turnout.plugins.kv_backends.storage.tensors import PoolShape, Storage

CPU = torch.device("cpu")
SHAPE = PoolShape(layers=3, slots=256, kv_heads=2, key_dim=64, value_dim=64, unit=16)
STORED: tuple[KVDtype, ...] = get_args(KVDtype)
COMPUTE = [torch.float32, torch.bfloat16, torch.float16]
ALL = torch.arange(SHAPE.slots)


def storage(stored: KVDtype, compute: torch.dtype = torch.float32) -> Storage:
    return make_storage(stored, SHAPE, CPU, compute)


def vectors(compute: torch.dtype, *, seed: int = 0) -> Tensor:
    """[slots, kv_heads, head_dim]: plain ones, some with outliers, some of zeros, large and small ones."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(SHAPE.slots, SHAPE.kv_heads, SHAPE.key_dim, generator=generator)
    x[::3, :, 5] *= 400
    x[1::5] *= 10.0 ** (torch.randint(-3, 3, (len(x[1::5]), 1, 1), generator=generator))
    x[7] = 0
    return x.to(compute)


def written(stored: KVDtype, compute: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """What was written as keys, and what is read back; the values are others."""
    pool, keys = storage(stored, compute), vectors(compute)
    pool.write(1, ALL, keys, vectors(compute, seed=1))
    read, values = pool.read(1, slice(0, SHAPE.slots))
    assert read.dtype == values.dtype == compute and read.shape == keys.shape
    assert not torch.equal(read, values)
    return keys.double(), read.double()


def rounding(compute: torch.dtype) -> float:
    """Of numbers brought into the dtype to compute in, relative to them."""
    return torch.finfo(compute).eps / 2


@pytest.mark.parametrize("compute", COMPUTE)
def test_as_computed_is_exact(compute: torch.dtype) -> None:
    keys, read = written("auto", compute)
    assert torch.equal(keys, read)


def test_bfloat16_is_off_by_a_256th_of_each_at_most() -> None:
    keys, read = written("bfloat16")
    assert ((keys - read).abs() <= 2.0**-8 * keys.abs()).all()
    assert torch.equal(*written("bfloat16", torch.bfloat16))


@pytest.mark.parametrize("compute", COMPUTE)
def test_int8_is_off_by_a_254th_of_the_largest_at_most(compute: torch.dtype) -> None:
    keys, read = written("int8", compute)
    largest = keys.abs().amax(-1, keepdim=True)
    bound = largest / 254 * (1 + 2.0**-8) + rounding(compute) * keys.abs() * 1.01
    assert ((keys - read).abs() <= bound * (1 + 1e-5)).all()


@pytest.mark.parametrize("compute", COMPUTE)
def test_fp8_is_off_by_a_16th_of_each_at_most(compute: torch.dtype) -> None:
    keys, read = written("fp8", compute)
    scale = keys.abs().amax(-1, keepdim=True) / 448 * (1 + 2.0**-8)
    normal = keys.abs() >= 2.0**-6 * scale
    error = (keys - read).abs()
    slack = rounding(compute) * keys.abs() * 1.1 + 1e-12
    assert normal.double().mean() > 0.9
    assert (error <= 2.0**-4 * keys.abs() + slack)[normal].all()
    assert (error <= 2.0**-10 * scale + slack)[~normal].all()


@pytest.mark.parametrize("stored", ["int8", "fp8"])
@pytest.mark.parametrize("size", [1e-30, 1e-6, 1.0, 3e4, 1e30])
def test_the_largest_of_a_vector_has_the_largest_code(stored: KVDtype, size: float) -> None:
    """For every scale between two powers of two: none clips, none overflows into fp8's NaN."""
    pool = make_storage(stored, SHAPE, CPU, torch.float32)
    assert isinstance(pool, Int8Storage | Fp8Storage)
    largest = size * torch.linspace(1, 2, SHAPE.slots * SHAPE.kv_heads).view(SHAPE.slots, -1, 1)
    keys = largest * torch.linspace(-1, 1, SHAPE.key_dim)
    pool.write(0, ALL, keys, -keys)
    codes = torch.empty(SHAPE.slots, 2 * SHAPE.kv_heads, SHAPE.key_dim)
    pool.decode(pool.tensors[0][0], codes)
    assert (codes.amax(-1) == pool.top).all() and (codes.amin(-1) == -pool.top).all()
    read, _ = pool.read(0, slice(0, SHAPE.slots))
    assert ((read - keys).abs().amax(-1, keepdim=True) <= 2.0**-4 * largest).all()


@pytest.mark.parametrize("stored", STORED)
def test_zeros_are_zeros(stored: KVDtype) -> None:
    pool = storage(stored)
    keys, values = pool.read(2, slice(0, 100))
    assert not keys.any() and not values.any()
    nothing = torch.zeros(SHAPE.slots, SHAPE.kv_heads, SHAPE.key_dim)
    pool.write(2, ALL, nothing, nothing)
    keys, values = pool.read(2, slice(0, SHAPE.slots))
    assert not keys.any() and not values.any()


@pytest.mark.parametrize("stored", STORED)
def test_a_token_is_stored_the_same_whatever_comes_with_it(stored: KVDtype) -> None:
    """So a result depends neither on how prompts are chunked nor on the batch."""
    at_once, one_by_one = storage(stored), storage(stored)
    keys, values = vectors(torch.float32), vectors(torch.float32, seed=1)
    at_once.write(1, ALL, keys, values)
    for slot in reversed(range(SHAPE.slots)):
        one_by_one.write(1, ALL[slot : slot + 1], keys[slot : slot + 1], values[slot : slot + 1])
    for whole, pieces in zip(at_once.tensors, one_by_one.tensors, strict=True):
        assert torch.equal(whole, pieces)


@pytest.mark.parametrize("stored", STORED)
def test_units_are_read_as_slices_are(stored: KVDtype) -> None:
    pool = storage(stored)
    pool.write(1, ALL, vectors(torch.float32), vectors(torch.float32, seed=1))
    keys, values = (side.clone() for side in pool.read(1, slice(0, SHAPE.slots)))
    units = torch.tensor([9, 0, 0, 15, 3])
    slots = (units[:, None] * SHAPE.unit + torch.arange(SHAPE.unit)).flatten()
    for _ in range(2):  # the scratch is used again
        read = pool.read(1, units)
        assert torch.equal(read[0], keys[slots]) and torch.equal(read[1], values[slots])


@pytest.mark.parametrize("compute", COMPUTE)
def test_fp8_codes_mean_what_torch_says(compute: torch.dtype) -> None:
    codes = torch.arange(-128, 128).to(torch.int8)
    expected = codes.view(torch.float8_e4m3fn).float()
    decoded = torch.empty(256, dtype=compute)
    Fp8Storage(SHAPE, CPU, compute).decode(codes, decoded)
    number = ~expected.isnan()
    assert number.sum() == 254
    assert torch.equal(decoded.float()[number], expected[number])


# ------------------------------------------------------------------ the sums


@pytest.mark.parametrize("backend", [Paged, Contiguous])
@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("compute", COMPUTE)
def test_the_bytes_of_a_token_are_the_bytes_it_takes(
    backend: type[Paged] | type[Contiguous], stored: KVDtype, compute: torch.dtype
) -> None:
    heads = Shape(SHAPE.key_dim * 4, SHAPE.layers, 4, SHAPE.kv_heads, 96, 160)
    spec = Qwen2().spec(config_of(heads, "qwen2", dtype="float32"))
    taken = sum(tensor.nbytes for tensor in storage(stored, compute).tensors)
    assert backend(dtype=stored).bytes_per_token(spec, compute.itemsize) * SHAPE.slots == taken


def test_int8_takes_little_more_than_a_quarter_of_float32() -> None:
    taken = {stored: sum(t.nbytes for t in storage(stored).tensors) for stored in STORED}
    assert taken["int8"] == taken["fp8"] == taken["auto"] * (64 + 2) / (64 * 4)


def test_fp8_refuses_what_it_cannot_be_read_as() -> None:
    """It was a KeyError at the first read."""
    with pytest.raises(ConfigError, match="KV in fp8 is read as float32, bfloat16, float16, not as float64"):
        storage("fp8", torch.float64)
