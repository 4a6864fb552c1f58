"""Triton programs of mixtures of experts.

Pairs of a token and an expert are sorted by expert. A program multiplies a tile of pairs of one expert with
a tile of its outputs. Each step adds as many inputs to the sums whatever the tile's size, so that a row's
bits do not depend on the rest of the batch.
Weights stay where they are: a table has their addresses. A program finds out for itself whose tile it has::

    starts   [experts + 1]: of each expert's pairs, and their end
    grid     (outputs / COLUMNS, as many tiles as there can be)
"""

from __future__ import annotations

import triton
import triton.language as tl

from turnout.kernels.gpu.number_programs import dot, from_e4m3, from_int4, from_int8, narrow

__all__ = ["expert_products", "weighted_sums"]


@triton.jit
def load_step(at_row, at_column, there, inside, left, STEP: tl.constexpr, ALIGNED: tl.constexpr):
    """Inputs of rows, and weights of columns, [STEP, columns]; `left` inputs are left."""
    k = tl.arange(0, STEP)
    some = k < left
    at = at_column + k[:, None]
    if ALIGNED:  # which the compiler cannot know of an address in a table
        at = tl.multiple_of(at, (16, 1))
    part_x = tl.load(at_row + k[None, :], mask=there[:, None] & some[None, :], other=0)
    return part_x, tl.load(at, mask=inside[None, :] & some[:, None], other=0)


@triton.jit
def load_group(at_row, at_column, there, inside, STEP: tl.constexpr, ALIGNED: tl.constexpr):
    """Inputs of the first and of the second half of a group, and the codes of both, [STEP / 2, columns]."""
    half: tl.constexpr = STEP // 2
    k = tl.arange(0, half)
    at = at_column + k[:, None]
    if ALIGNED:
        at = tl.multiple_of(at, (16, 1))
    low = tl.load(at_row + k[None, :], mask=there[:, None], other=0)
    high = tl.load(at_row + (half + k)[None, :], mask=there[:, None], other=0)
    return low, high, tl.load(at, mask=inside[None, :], other=0)


@triton.jit
def multiplied(
    part_x,
    part_w,
    SCALED: tl.constexpr,
    CODES: tl.constexpr,
    FLOATS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The product of a step, as `expert_products` says."""
    if CODES and FLOATS:
        return tl.dot(part_x.to(tl.float8e4nv, bitcast=True), part_w.to(tl.float8e4nv, bitcast=True))
    elif CODES:
        return tl.dot(part_x, part_w, out_dtype=tl.int32)
    elif SCALED and FLOATS:
        return dot(part_x, from_e4m3(part_w, part_x.dtype), PRECISION)
    elif SCALED:
        return dot(part_x, from_int8(part_w, part_x.dtype), PRECISION)
    else:
        return dot(part_x, part_w, PRECISION)


@triton.jit(do_not_specialize=["experts"])
def expert_products(
    x,
    x_scale,
    weights,
    scales,
    biases,
    offsets,
    starts,
    order,
    out,
    experts,
    outputs,
    inputs,
    EXPERTS: tl.constexpr,
    TOP: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STEP: tl.constexpr,
    GATHER: tl.constexpr,
    NUMBERS: tl.constexpr,
    ALIGNED: tl.constexpr,
    BIAS: tl.constexpr,
    BIAS_NUMBERS: tl.constexpr,
    SCALED: tl.constexpr,
    CODES: tl.constexpr,
    FLOATS: tl.constexpr,
    GROUP: tl.constexpr,
    OFFSET: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """out = x @ weight.T * scale + bias, by each pair's expert.

    weights, biases: addresses for each expert, of NUMBERS and BIAS_NUMBERS; scales, offsets: of float32.
    order: pairs as they were before they were sorted, TOP for each token.
    GATHER: x has a row for each token, and out one for each sorted pair; otherwise x has a row for each
    sorted pair, and out one for each pair in the old order.
    ALIGNED: 16 bytes of a row of weights begin at a multiple of 16.
    SCALED: weights are int8; CODES: x is, too, with `x_scale` for each row. FLOATS: both are e4m3 in int8.
    GROUP: weights are 4 bits, two to a byte, of groups of so many inputs; STEP is as large.
    """
    tile = tl.program_id(1)
    number = tl.arange(0, EXPERTS)
    real = number < experts
    begin = tl.load(starts + number, mask=real, other=0).to(tl.int32)
    end = tl.load(starts + number + 1, mask=real, other=0).to(tl.int32)
    tiles = (end - begin + ROWS - 1) // ROWS
    last = tl.cumsum(tiles, 0)
    expert = tl.sum((last <= tile).to(tl.int32), 0)
    if expert < experts:  # else there are fewer tiles
        own = number == expert
        before = tile - tl.sum(tl.where(own, last - tiles, 0), 0)
        place = tl.sum(tl.where(own, begin, 0), 0) + before * ROWS + tl.arange(0, ROWS)
        there = place < tl.sum(tl.where(own, end, 0), 0)
        pair = tl.load(order + place, mask=there, other=0)
        source = pair // TOP if GATHER else place.to(tl.int64)
        target = place.to(tl.int64) if GATHER else pair
        column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
        inside = column < outputs
        address = tl.load(weights + expert).to(tl.pointer_type(NUMBERS))
        at_column = address + column.to(tl.int64)[None, :] * (inputs // 2 if GROUP else inputs)
        at_row = x + source[:, None] * inputs
        at_scale = tl.load(scales + expert).to(tl.pointer_type(tl.float32))
        at_offset = tl.load(offsets + expert).to(tl.pointer_type(tl.float32))
        sums = tl.zeros((ROWS, COLUMNS), tl.int32 if CODES and not FLOATS else tl.float32)
        for start in range(0, inputs, STEP):
            if GROUP:
                low, high, both = load_group(
                    at_row + start, at_column + start // 2, there, inside, STEP, ALIGNED
                )
                product = dot(low, from_int4(both & 15, x.dtype.element_ty), PRECISION)
                product += dot(high, from_int4(both >> 4, x.dtype.element_ty), PRECISION)
                group = column.to(tl.int64) * (inputs // GROUP) + start // GROUP
                product *= tl.load(at_scale + group, mask=inside, other=0.0)[None, :]
                if OFFSET:
                    taken = tl.sum(low.to(tl.float32) + high.to(tl.float32), 1)
                    product += taken[:, None] * tl.load(at_offset + group, mask=inside, other=0.0)[None, :]
                sums += product
            else:
                part_x, part_w = load_step(
                    at_row + start, at_column + start, there, inside, inputs - start, STEP, ALIGNED
                )
                sums += multiplied(part_x, part_w, SCALED, CODES, FLOATS, PRECISION)
        result = sums.to(tl.float32)
        if CODES:
            result *= tl.load(x_scale + source, mask=there, other=0.0)[:, None]
        if SCALED:
            result *= tl.load(at_scale + column, mask=inside, other=0.0)[None, :]
        if BIAS:
            at_bias = tl.load(biases + expert).to(tl.pointer_type(BIAS_NUMBERS))
            result += tl.load(at_bias + column, mask=inside, other=0.0).to(tl.float32)[None, :]
        to = out + target[:, None] * outputs + column[None, :]
        tl.store(to, narrow(result, out.dtype.element_ty), mask=there[:, None] & inside[None, :])


@triton.jit
def weighted_sums(parts, weights, out, size, TOP: tl.constexpr, BLOCK: tl.constexpr):
    """out = the sum of a token's parts [TOP, size], each by its weight. Grid: (tokens, blocks of `size`)."""
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < size
    sums = tl.zeros((BLOCK,), tl.float32)
    for part in range(TOP):
        pair = token * TOP + part
        numbers = tl.load(parts + pair * size + column, mask=inside, other=0.0).to(tl.float32)
        sums += numbers * tl.load(weights + pair)
    tl.store(out + token * size + column, narrow(sums, out.dtype.element_ty), mask=inside)
