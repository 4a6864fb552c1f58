"""Triton programs of products with quantized weights.

`weight_only` multiplies activations as they are with codes that are widened on their way, `both` multiplies
codes with codes. Weights lie as a linear layer has them, [outputs, inputs]. A program computes a tile of rows
and outputs; where tiles are too few to fill a card, inputs are cut into parts too, which `join` adds up::

    grid   (outputs / COLUMNS, rows / ROWS, parts)
"""

from __future__ import annotations

import triton
import triton.language as tl

from turnout.kernels.gpu.number_programs import (
    dot,
    from_e4m3,
    from_int4,
    from_int8,
    narrow,
)

__all__ = ["both", "join", "weight_only"]


@triton.jit(do_not_specialize=["rows"])
def weight_only(
    x,
    codes,
    scale,
    offset,
    bias,
    out,
    rows,
    outputs,
    inputs,
    span,
    x_row,
    codes_row,
    groups,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STEP: tl.constexpr,
    CODES: tl.constexpr,
    OFFSET: tl.constexpr,
    BIAS: tl.constexpr,
    WHOLE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """out[part] = x @ weight.T + bias over inputs part * span to that + span.

    weight = code * scale (+ offset), for each output and, with GROUP > 0, each group of that many inputs,
    which STEP divides. Codes are int8, e4m3 in int8, or, less 8, two to a byte: inputs j (low) and
    j + GROUP / 2 of a group, which is one STEP then.
    WHOLE: there is one part, and scale and bias are applied here.
    """
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    part = tl.program_id(2)
    there, real = row < rows, column < outputs
    at_row = x + row.to(tl.int64)[:, None] * x_row
    at_column = codes + column.to(tl.int64)[None, :] * codes_row
    at_group = column.to(tl.int64) * groups
    sums = tl.zeros((ROWS, COLUMNS), tl.float32)
    end = tl.minimum(inputs, part * span + span)
    for start in range(part * span, end, STEP):
        if CODES == "int4":
            half: tl.constexpr = STEP // 2
            k = tl.arange(0, half)
            low = tl.load(at_row + (start + k)[None, :], mask=there[:, None], other=0.0)
            high = tl.load(at_row + (start + half + k)[None, :], mask=there[:, None], other=0.0)
            pairs = tl.load(at_column + (start // 2 + k)[:, None], mask=real[None, :], other=0)
            product = dot(low, from_int4(pairs & 15, x.dtype.element_ty), PRECISION)
            product += dot(high, from_int4(pairs >> 4, x.dtype.element_ty), PRECISION)
            taken = tl.sum(low.to(tl.float32) + high.to(tl.float32), 1)
        else:
            k = start + tl.arange(0, STEP)
            inside = k < end
            part_x = tl.load(at_row + k[None, :], mask=there[:, None] & inside[None, :], other=0.0)
            part_w = tl.load(at_column + k[:, None], mask=real[None, :] & inside[:, None], other=0)
            if CODES == "fp8":
                wide = from_e4m3(part_w, x.dtype.element_ty)
            else:
                wide = from_int8(part_w, x.dtype.element_ty)
            product = dot(part_x, wide, PRECISION)
            taken = tl.sum(part_x.to(tl.float32), 1)
        if GROUP > 0:
            at = at_group + start // GROUP
            product *= tl.load(scale + at, mask=real, other=0.0)[None, :]
            if OFFSET:
                product += taken[:, None] * tl.load(offset + at, mask=real, other=0.0)[None, :]
        sums += product
    place = (part * rows + row).to(tl.int64)[:, None] * outputs + column[None, :]
    kept = there[:, None] & real[None, :]
    if WHOLE:
        if GROUP == 0:
            sums *= tl.load(scale + column, mask=real, other=0.0)[None, :]
        if BIAS:
            sums += tl.load(bias + column, mask=real, other=0.0).to(tl.float32)[None, :]
        tl.store(out + place, narrow(sums, out.dtype.element_ty), mask=kept)
    else:
        tl.store(out + place, sums, mask=kept)


@triton.jit(do_not_specialize=["rows"])
def both(
    x,
    codes,
    x_scale,
    scale,
    bias,
    out,
    rows,
    outputs,
    inputs,
    span,
    x_row,
    codes_row,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    STEP: tl.constexpr,
    FLOATS: tl.constexpr,
    BIAS: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """As `weight_only`, of codes for x, too: int8 for both, or FLOATS: float8_e4m3fn for both."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    part = tl.program_id(2)
    there, real = row < rows, column < outputs
    at_row = x + row.to(tl.int64)[:, None] * x_row
    at_column = codes + column.to(tl.int64)[None, :] * codes_row
    sums = tl.zeros((ROWS, COLUMNS), tl.float32 if FLOATS else tl.int32)
    end = tl.minimum(inputs, part * span + span)
    for start in range(part * span, end, STEP):
        k = start + tl.arange(0, STEP)
        inside = k < end
        part_x = tl.load(at_row + k[None, :], mask=there[:, None] & inside[None, :], other=0)
        part_w = tl.load(at_column + k[:, None], mask=real[None, :] & inside[:, None], other=0)
        if FLOATS:
            # Added to the sums step by step: within a product a Hopper keeps 14 bits of them.
            part_x, part_w = part_x.to(tl.float8e4nv, bitcast=True), part_w.to(tl.float8e4nv, bitcast=True)
            sums += tl.dot(part_x, part_w)
        else:
            sums += tl.dot(part_x, part_w, out_dtype=tl.int32)
    place = (part * rows + row).to(tl.int64)[:, None] * outputs + column[None, :]
    kept = there[:, None] & real[None, :]
    if WHOLE:
        numbers = sums.to(tl.float32) * tl.load(x_scale + row, mask=there, other=0.0)[:, None]
        numbers *= tl.load(scale + column, mask=real, other=0.0)[None, :]
        if BIAS:
            numbers += tl.load(bias + column, mask=real, other=0.0).to(tl.float32)[None, :]
        tl.store(out + place, narrow(numbers, out.dtype.element_ty), mask=kept)
    else:
        tl.store(out + place, sums, mask=kept)


@triton.jit(do_not_specialize=["rows", "count"])
def join(
    parts,
    x_scale,
    scale,
    bias,
    out,
    count,
    rows,
    outputs,
    BLOCK: tl.constexpr,
    X_SCALE: tl.constexpr,
    SCALE: tl.constexpr,
    BIAS: tl.constexpr,
):
    """out = the sum of parts [count, rows, outputs], scaled, + bias. Grid: (rows, blocks of outputs)."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    real = column < outputs
    sums = tl.zeros((BLOCK,), parts.dtype.element_ty)
    for part in range(count):
        sums += tl.load(parts + (part * rows + row) * outputs + column, mask=real, other=0)
    numbers = sums.to(tl.float32)
    if X_SCALE:
        numbers *= tl.load(x_scale + row)
    if SCALE:
        numbers *= tl.load(scale + column, mask=real, other=0.0)
    if BIAS:
        numbers += tl.load(bias + column, mask=real, other=0.0).to(tl.float32)
    tl.store(out + row * outputs + column, narrow(numbers, out.dtype.element_ty), mask=real)
