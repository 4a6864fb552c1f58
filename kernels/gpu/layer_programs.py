"""Triton programs of the layers between matrix products. They round where PyTorch's layers round."""

from __future__ import annotations

import triton
import triton.language as tl

from turnout.kernels.gpu.number_programs import narrow

__all__ = ["gate_rows", "norm_rows", "rotate_heads"]


@triton.jit
def norm_rows(
    x,
    delta,
    weight,
    out,
    eps,
    x_row,
    delta_row,
    size: tl.constexpr,
    SIZE: tl.constexpr,
    ADDS: tl.constexpr,
):
    """x += delta; out = norm(x) * weight. Grid: (rows,)."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, SIZE)
    inside = column < size
    numbers = tl.load(x + row * x_row + column, mask=inside, other=0.0)
    if ADDS:
        added = tl.load(delta + row * delta_row + column, mask=inside, other=0.0)
        numbers = narrow(numbers.to(tl.float32) + added.to(tl.float32), x.dtype.element_ty)
        tl.store(x + row * x_row + column, numbers, mask=inside)
    wide = numbers.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, 0) / size + eps)
    normed = narrow(wide * scale, x.dtype.element_ty).to(tl.float32)
    factor = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * size + column, narrow(normed * factor, x.dtype.element_ty), mask=inside)


@triton.jit
def gate_rows(both, out, both_row, size, BLOCK: tl.constexpr):
    """out = silu(first half) * second half. Grid: (rows, blocks of `size`)."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < size
    gate = tl.load(both + row * both_row + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(both + row * both_row + size + column, mask=inside, other=0.0).to(tl.float32)
    opened = narrow(gate * tl.sigmoid(gate), both.dtype.element_ty).to(tl.float32)
    tl.store(out + row * size + column, narrow(opened * up, both.dtype.element_ty), mask=inside)


@triton.jit
def rotate_heads(
    x,
    cosine,
    sine,
    x_token,
    x_head,
    heads: tl.constexpr,
    half: tl.constexpr,
    HEADS: tl.constexpr,
    HALF: tl.constexpr,
):
    """Rotates all heads of a token in place. Grid: (tokens,)."""
    token = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, HALF)
    inside = d < half
    # Both halves of a head turn by the same angles.
    cos = tl.load(cosine + token * 2 * half + d, mask=inside, other=0.0).to(tl.float32)[None, :]
    sin = tl.load(sine + token * 2 * half + d, mask=inside, other=0.0).to(tl.float32)[None, :]
    head = tl.arange(0, HEADS)
    there = (head < heads)[:, None] & inside[None, :]
    first = x + token * x_token + head[:, None] * x_head + d[None, :]
    one = tl.load(first, mask=there, other=0.0).to(tl.float32)
    other = tl.load(first + half, mask=there, other=0.0).to(tl.float32)
    tl.store(first, narrow(one * cos - other * sin, x.dtype.element_ty), mask=there)
    tl.store(first + half, narrow(other * cos + one * sin, x.dtype.element_ty), mask=there)
