"""A Triton program that rounds rows to 8 bits, each with a scale of its own."""

from __future__ import annotations

import triton
import triton.language as tl

from turnout.kernels.gpu.number_programs import encode_e4m3, round_even

__all__ = ["quantize_rows"]

SMALLEST = tl.constexpr(1e-20)


@triton.jit
def quantize_rows(x, codes, scales, size, x_row, SIZE: tl.constexpr, FLOATS: tl.constexpr):
    """A scale for each row, and its numbers as int8 or, with FLOATS, as e4m3 in int8. Grid: (rows,)."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, SIZE)
    inside = column < size
    numbers = tl.load(x + row * x_row + column, mask=inside, other=0.0).to(tl.float32)
    top = 448.0 if FLOATS else 127.0
    scale = tl.div_rn(tl.maximum(tl.max(tl.abs(numbers), 0), SMALLEST), top)
    tl.store(scales + row, scale)
    scaled = tl.div_rn(numbers, tl.zeros_like(numbers) + scale)
    if FLOATS:
        found = encode_e4m3(scaled)
    else:
        found = round_even(scaled).to(tl.int32).to(tl.int8)
    tl.store(codes + row * size + column, found, mask=inside)
