"""What is stored in few bits is widened exactly, every code of it, to whatever is computed in."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from turnout.kernels.gpu.number_programs import from_e4m3, from_int4, from_int8

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
BYTES = torch.arange(-128, 128).to(torch.int8)
E4M3 = BYTES[(BYTES & 0x7F) != 0x7F]
"""But for what is no number, which weights, keys and values are not."""
NIBBLES = torch.arange(16, dtype=torch.uint8)


@triton.jit
def widen(codes, out, COUNT: tl.constexpr, KIND: tl.constexpr):
    at = tl.arange(0, COUNT)
    stored = tl.load(codes + at)
    if KIND == "e4m3":
        tl.store(out + at, from_e4m3(stored, out.dtype.element_ty))
    elif KIND == "int8":
        tl.store(out + at, from_int8(stored, out.dtype.element_ty))
    else:
        tl.store(out + at, from_int4(stored, out.dtype.element_ty))


def widened(codes: Tensor, kind: str, dtype: torch.dtype, device: torch.device) -> Tensor:
    count = 1 << (len(codes) - 1).bit_length()
    padded = torch.nn.functional.pad(codes, (0, count - len(codes))).to(device)
    out = torch.empty(count, dtype=dtype, device=device)
    widen[1,](padded, out, COUNT=count, KIND=kind)
    return out[: len(codes)].cpu()


@pytest.mark.parametrize("dtype", DTYPES)
def test_whole_numbers(dtype: torch.dtype, device: torch.device) -> None:
    assert widened(BYTES, "int8", dtype, device).equal(BYTES.to(dtype))
    assert widened(NIBBLES, "int4", dtype, device).equal((NIBBLES.to(torch.int8) - 8).to(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_floating_point(dtype: torch.dtype, device: torch.device) -> None:
    assert widened(E4M3, "e4m3", dtype, device).equal(E4M3.view(torch.float8_e4m3fn).to(dtype))


def test_the_short_ways_of_a_gpu() -> None:
    """Those that the interpreter does not go, having no bfloat16: the same bits by PyTorch's operators."""
    shifted = (E4M3.to(torch.int16) << 4) & -0x7810
    assert (shifted.view(torch.bfloat16) * 2.0**120).equal(E4M3.view(torch.float8_e4m3fn).bfloat16())
    assert ((NIBBLES.to(torch.int16) | 0x4300).view(torch.bfloat16) - 136).equal(NIBBLES.bfloat16() - 8)
