"""Triton programs that multiply one row by a matrix of few bits: what decoding a single sequence consists of.

Tiles of matrix units have 16 rows or more, 15 of them empty here, and codes are widened for them one by one.
These programs multiply four or more codes at once, in registers, on their way through the weights::

    grid   (outputs / COLUMNS,)

A word is 4 bytes of `codes_row`, and 16 of `nibbles_row`: as much as a thread loads at once.
"""

from __future__ import annotations

import triton
import triton.language as tl

from turnout.kernels.gpu.number_programs import INTERPRETED, encode_e4m3, from_e4m3, narrow, round_even
from turnout.kernels.gpu.rounding_programs import SMALLEST

__all__ = ["codes_row", "nibbles_row"]

SHRINK = tl.constexpr(2.0**-8)
"""By which e4m3 of the row is smaller as float16, so that the sum of two products is at most 1568."""
FOUR_OF_E4M3 = tl.constexpr(
    """{
        .reg .b16 low, high, one, other;
        .reg .b32 first, second;
        .reg .f32 sum, more;
        mov.b32 {low, high}, $1;
        cvt.rn.f16x2.e4m3x2 first, low;
        cvt.rn.f16x2.e4m3x2 second, high;
        mul.rn.f16x2 first, first, $2;
        fma.rn.f16x2 first, second, $3, first;
        mov.b32 {one, other}, first;
        cvt.f32.f16 sum, one;
        cvt.f32.f16 more, other;
        add.f32 sum, sum, more;
        add.f32 $0, $4, sum;
    }"""
)
"""$0 = $4 + the products of four e4m3 in $1 with the float16 pairs $2 and $3; two are added up in float16."""


@triton.jit
def codes_row(
    x,
    words,
    scale,
    bias,
    out,
    outputs,
    inputs,
    words_row,
    COLUMNS: tl.constexpr,
    WORDS: tl.constexpr,
    WHOLE: tl.constexpr,
    FLOATS: tl.constexpr,
    BIAS: tl.constexpr,
):
    """out = x @ weight.T + bias, where x is rounded to the weights' codes, too, with one scale.

    x: [inputs], a multiple of 4, in floating point. words: int32 [outputs, inputs / 4], four codes each: int8
    or, with FLOATS, e4m3. Each program rounds x anew. WORDS: multiplied at a time. WHOLE: inputs, padded to a
    power of two. Sums of int8 are exact, so their bits are those of `both` in `product_programs.py`.
    """
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    real = column < outputs
    all_inputs = tl.arange(0, WHOLE)
    numbers = tl.load(x + all_inputs, mask=all_inputs < inputs, other=0.0).to(tl.float32)
    top = 448.0 if FLOATS else 127.0
    x_scale = tl.div_rn(tl.maximum(tl.max(tl.abs(numbers), 0), SMALLEST), top)
    at_column = words + column.to(tl.int64)[:, None] * words_row
    sums = tl.zeros((COLUMNS, WORDS), tl.float32 if FLOATS else tl.int32)
    byte = tl.arange(0, 4)
    for start in range(0, inputs // 4, WORDS):
        word = start + tl.arange(0, WORDS)
        inside = word < inputs // 4
        part_w = tl.load(at_column + word[None, :], mask=real[:, None] & inside[None, :], other=0)
        at = word[:, None] * 4 + byte[None, :]
        part_x = tl.load(x + at, mask=inside[:, None] & (byte >= 0)[None, :], other=0.0).to(tl.float32)
        scaled = tl.div_rn(part_x, tl.zeros_like(part_x) + x_scale)
        if FLOATS:
            sums = add_e4m3(sums, part_w, from_e4m3(encode_e4m3(scaled), tl.float32), byte)
        else:
            sums = add_int8(sums, part_w, round_even(scaled).to(tl.int32), byte)
    result = tl.sum(sums, 1).to(tl.float32) * x_scale
    if FLOATS:
        result *= 1.0 / SHRINK
    result *= tl.load(scale + column, mask=real, other=0.0)
    if BIAS:
        result += tl.load(bias + column, mask=real, other=0.0).to(tl.float32)
    tl.store(out + column, narrow(result, out.dtype.element_ty), mask=real)


@triton.jit
def add_int8(sums, words, numbers, byte):
    """sums + the products of four int8 in each of `words`, [columns, words], and `numbers`, [words, 4]."""
    packed = tl.sum((numbers & 255) << (8 * byte)[None, :], 1)[None, :]
    if INTERPRETED:
        for place in tl.static_range(4):
            code = (words << (24 - 8 * place)) >> 24
            sums += code * ((packed << (24 - 8 * place)) >> 24)
        return sums
    else:
        packed = packed + tl.zeros_like(words)
        return tl.inline_asm_elementwise(
            "dp4a.s32.s32 $0, $1, $2, $3;", "=r,r,r,r", [words, packed, sums], tl.int32, is_pure=True, pack=1
        )


@triton.jit
def add_e4m3(sums, words, numbers, byte):
    """sums + the products of four e4m3 in each of `words`, [columns, words], and `numbers`, [words, 4]."""
    small = (numbers * SHRINK).to(tl.float16)
    if INTERPRETED:
        for place in tl.static_range(4):
            code = from_e4m3(((words << (24 - 8 * place)) >> 24).to(tl.int8), tl.float32)
            number = tl.sum(tl.where((byte == place)[None, :], small.to(tl.float32), 0.0), 1)
            sums += code * number[None, :]
        return sums
    else:
        halves = small.to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF
        placed = halves << (16 * (byte & 1))[None, :]
        first = tl.sum(tl.where((byte < 2)[None, :], placed, 0), 1)[None, :] + tl.zeros_like(words)
        second = tl.sum(tl.where((byte < 2)[None, :], 0, placed), 1)[None, :] + tl.zeros_like(words)
        return tl.inline_asm_elementwise(
            FOUR_OF_E4M3, "=f,r,r,r,f", [words, first, second, sums], tl.float32, is_pure=True, pack=1
        )


@triton.jit
def nibbles_row(
    x,
    codes,
    scale,
    offset,
    bias,
    out,
    outputs,
    groups,
    codes_row,
    COLUMNS: tl.constexpr,
    GROUP: tl.constexpr,
    GROUPS: tl.constexpr,
    OFFSET: tl.constexpr,
    BIAS: tl.constexpr,
):
    """out = x @ weight.T + bias, where weight = code * scale (+ offset), for each group of GROUP inputs.

    x: [groups * GROUP], as it is. codes: 4 bits, as `weight_only` in `product_programs.py` takes them; GROUP
    is a power of two. GROUPS: multiplied at a time.
    """
    half: tl.constexpr = GROUP // 2
    words: tl.constexpr = half // 16
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    real = column < outputs
    at_column = codes + column.to(tl.int64)[:, None, None, None] * codes_row
    at_group = column.to(tl.int64)[:, None] * groups
    word, byte = tl.arange(0, words)[None, :, None], tl.arange(0, 16)[None, None, :]
    sums = tl.zeros((COLUMNS, GROUPS, words), tl.float32)
    for start in range(0, groups, GROUPS):
        group = start + tl.arange(0, GROUPS)
        inside = group < groups
        within = inside[:, None, None] & (word >= 0) & (byte >= 0)
        at_low = group[:, None, None] * GROUP + word * 16 + byte
        low = tl.load(x + at_low, mask=within, other=0.0).to(tl.float32)
        high = tl.load(x + at_low + half, mask=within, other=0.0).to(tl.float32)
        at_word = group[:, None, None] * half + word * 16 + byte
        held = real[:, None, None, None] & within[None, :, :, :]
        pairs = tl.load(at_column + at_word[None, :, :, :], mask=held, other=0)
        product = low[None, :, :, :] * (pairs & 15).to(tl.float32)
        product += high[None, :, :, :] * (pairs >> 4).to(tl.float32)
        there = real[:, None] & inside[None, :]
        factor = tl.load(scale + at_group + group[None, :], mask=there, other=0.0)
        added = -8.0 * factor
        if OFFSET:
            added += tl.load(offset + at_group + group[None, :], mask=there, other=0.0)
        taken = tl.sum(low + high, 2)[None, :, :]
        sums += tl.sum(product, 3) * factor[:, :, None] + taken * added[:, :, None]
    result = tl.sum(tl.sum(sums, 2), 1)
    if BIAS:
        result += tl.load(bias + column, mask=real, other=0.0).to(tl.float32)
    tl.store(out + column, narrow(result, out.dtype.element_ty), mask=real)
