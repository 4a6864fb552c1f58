"""Triton programs of ragged attention: `attend` for a tile and a KV head, `merge` for contexts read in parts.

A tile has a few tokens of one chunk with all query heads of one KV head, folded into rows::

    row        0        1        2        3        4  …        share = 2 query heads for each KV head
    token      t        t       t+1      t+1      t+2 …
    head     2·kv     2·kv+1   2·kv     2·kv+1   2·kv …

Each program reads the keys and values of its tile's context once, block by block, with the running softmax of
FlashAttention-2 (Dao, 2023, https://arxiv.org/abs/2307.08691). When chunks are short and contexts long, there
are too few tiles to fill a GPU: then several programs read a context in parts, and a second kernel combines
the parts by their log-sum-exp (Flash-Decoding). The number of parts depends only on the length of the
context, so that no request's results depend on the other requests in the batch.

A prefix that several chunks share can be read once for all of them (Hydragen, Juravsky et al., 2024,
https://arxiv.org/abs/2402.05099). A tile then has tokens of many chunks (SHARED), all of which attend to the
whole prefix; the chunks' own tiles begin behind the prefix (SKIPS), and `merge` combines both.

In a layer with a window (WINDOWED), a tile begins at the positions, TOGETHER at a time, that its first token
still sees: blocks before may be another sequence's by now. A sink is a score without a value, with which the
softmax of a row's first part begins.
"""

from __future__ import annotations

import triton
import triton.language as tl

from turnout.kernels.gpu.number_programs import dot, from_e4m3, from_int8

__all__ = ["attend", "merge"]

LOG2_E = tl.constexpr(1.4426950408889634)
MANY = tl.constexpr(64)
"""Rows of a tile from which on its time is that of the arithmetic."""


@triton.jit(do_not_specialize=["cells", "table_row", "first_part"])
def attend(  # noqa: C901 - Triton takes a program as one function
    q,
    k,
    v,
    k_scales,
    v_scales,
    sinks,
    tables,
    firsts,
    starts,
    lengths,
    chunks,
    offsets,
    skips,
    flat_rows,
    rows,
    out,
    partial,
    logsums,
    first_part,
    softmax_scale,
    softcap,
    window,
    cells,
    q_token,
    q_head,
    kv_slot,
    kv_head,
    scale_slot,
    scale_head,
    table_row,
    share: tl.constexpr,
    dim: tl.constexpr,
    DIM: tl.constexpr,
    ROWS: tl.constexpr,
    STEP: tl.constexpr,
    TOGETHER: tl.constexpr,
    PART: tl.constexpr,
    MOST_PARTS: tl.constexpr,
    SPLIT: tl.constexpr,
    SKIPS: tl.constexpr,
    SHARED: tl.constexpr,
    WINDOWED: tl.constexpr,
    CAPPED: tl.constexpr,
    SINKS: tl.constexpr,
    BLOCK: tl.constexpr,
    CODES: tl.constexpr,
    PRECISION: tl.constexpr,
):
    tile, head, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    heads = tl.num_programs(1) * share
    chunk = tl.load(chunks + tile)
    offset = tl.load(offsets + tile)
    first, start, length = tl.load(firsts + chunk), tl.load(starts + chunk), tl.load(lengths + chunk)

    row = tl.arange(0, ROWS)
    token = offset + row // share
    real = (row < ROWS // share * share) & (token < length)
    d = tl.arange(0, DIM)
    inside = d < dim
    flat_row = (first + token).to(tl.int64)
    if SHARED:
        flat_row = tl.load(flat_rows + flat_row, mask=real, other=0).to(tl.int64)
    query_head = head * share + row % share

    upto = start if SHARED else tl.minimum(start + length, start + offset + ROWS // share)
    begin = tl.load(skips + chunk) if SKIPS else 0
    if WINDOWED:
        begin = tl.maximum(begin, (start + offset + 1 - window) // TOGETHER * TOGETHER)
    if SPLIT:
        context = upto - begin
        parts = tl.maximum(1, tl.minimum(MOST_PARTS, tl.cdiv(context, PART)))
        span = tl.cdiv(tl.cdiv(context, STEP), parts) * STEP
        begin += part * span
        upto = tl.minimum(upto, begin + span)
        if SHARED:
            cell = tl.load(rows + first + token, mask=real, other=0)
        else:
            cell = tl.load(rows + chunk) + token
        cell = ((first_part + part) * cells + cell.to(tl.int64)) * heads + query_head
        if begin >= upto:  # a part without context has no weight, and is not read
            tl.store(logsums + cell, tl.full((ROWS,), float("-inf"), tl.float32), mask=real)
            return

    queries = tl.load(
        q + flat_row[:, None] * q_token + query_head[:, None] * q_head + d[None, :],
        mask=real[:, None] & inside[None, :],
        other=0.0,
    )
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    if SINKS and not SHARED:  # noqa: SIM102 - known when the kernel is compiled, the other is not
        if part == 0:
            top = tl.load(sinks + query_head, mask=real, other=float("-inf")).to(tl.float32) * LOG2_E
            total = tl.where(real, 1.0, 0.0)
    mixed = tl.zeros((ROWS, DIM), tl.float32)
    table, last = tables + chunk * table_row, start + token
    scale, factor = softmax_scale, (1.0 if CAPPED else softmax_scale) * LOG2_E
    kv_at, scale_at = head * kv_head + d, head * scale_head
    edge = begin
    if ROWS >= MANY and not WINDOWED:  # positions that all rows attend to cost a third less without a mask
        edge += tl.maximum(0, tl.minimum(upto, start + offset + 1) - begin) // STEP * STEP
        for at in range(begin, edge, STEP):
            top, total, mixed = _read(
                queries, top, total, mixed, last, scale, softcap, window, factor, at, upto, table, k, v,
                kv_at, kv_slot, inside, k_scales, v_scales, scale_at, scale_slot, STEP, WINDOWED, CAPPED,
                BLOCK, CODES, PRECISION, ALL=True,
            )  # fmt: skip
    for at in range(edge, upto, STEP):
        top, total, mixed = _read(
            queries, top, total, mixed, last, scale, softcap, window, factor, at, upto, table, k, v, kv_at,
            kv_slot, inside, k_scales, v_scales, scale_at, scale_slot, STEP, WINDOWED, CAPPED, BLOCK,
            CODES, PRECISION, ALL=False,
        )  # fmt: skip

    total = tl.where(total == 0.0, 1.0, total)  # of padding rows, and of a part without context
    mixed = mixed / total[:, None]
    kept = real[:, None] & inside[None, :]
    if SPLIT:
        tl.store(partial + cell[:, None] * dim + d[None, :], mixed, mask=kept)
        tl.store(logsums + cell, top + tl.log2(total), mask=real)
    else:
        tl.store(out + (flat_row * heads + query_head)[:, None] * dim + d[None, :], mixed, mask=kept)


@triton.jit
def _read(
    queries,
    top,
    total,
    mixed,
    last,
    scale,
    softcap,
    window,
    factor,
    at,
    upto,
    table,
    k,
    v,
    kv_at,
    kv_slot,
    inside,
    k_scales,
    v_scales,
    scale_at,
    scale_slot,
    STEP: tl.constexpr,
    WINDOWED: tl.constexpr,
    CAPPED: tl.constexpr,
    BLOCK: tl.constexpr,
    CODES: tl.constexpr,
    PRECISION: tl.constexpr,
    ALL: tl.constexpr,
):
    """The running softmax after STEP more positions from `at` on. ALL: every row attends to all of them."""
    position = at + tl.arange(0, STEP)
    # Memory beyond the context is not read: a mask would not hide a NaN in it.
    there = tl.full((STEP,), True, tl.int1) if ALL else position < upto
    slot = (tl.load(table + position // BLOCK, mask=there, other=0) + position % BLOCK).to(tl.int64)
    held, kv_at_slots = there[:, None] & inside[None, :], slot[:, None] * kv_slot + kv_at[None, :]
    keys, values = tl.load(k + kv_at_slots, mask=held, other=0), tl.load(v + kv_at_slots, mask=held, other=0)
    if CODES != "none":
        scale_at_slots = slot * scale_slot + scale_at
        k_scale = tl.load(k_scales + scale_at_slots, mask=there, other=0.0).to(tl.float32)
        v_scale = tl.load(v_scales + scale_at_slots, mask=there, other=0.0).to(tl.float32)
    scores = dot(queries, tl.trans(_numbers(keys, queries.dtype, CODES)), PRECISION)
    if CODES != "none":
        scores *= k_scale[None, :]
    if CAPPED:  # the hyperbolic tangent, by an exponential that may be infinite
        scores = softcap * (1.0 - 2.0 / (tl.exp2(scores * (2.0 * LOG2_E * scale / softcap)) + 1.0))
    if ALL:
        higher = tl.maximum(top, tl.max(scores, 1) * factor)
        level = higher
    else:
        seen = there[None, :] & (position[None, :] <= last[:, None])
        if WINDOWED:
            seen &= position[None, :] > last[:, None] - window
        scores = tl.where(seen, scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1) * factor)
        # A row that has attended to no position yet has no maximum to subtract.
        level = tl.where(higher == float("-inf"), 0.0, higher)
    weights = tl.exp2(scores * factor - level[:, None])
    shrink = tl.exp2(top - level)
    total = total * shrink + tl.sum(weights, 1)
    if CODES != "none" and queries.dtype == tl.float16:  # too coarse for small weights of small values
        numbers = (_numbers(values, tl.float32, CODES) * v_scale[:, None]).to(tl.float16)
    else:
        numbers = _numbers(values, queries.dtype, CODES)
        if CODES != "none":
            weights *= v_scale[None, :]
    product = dot(weights.to(queries.dtype), numbers, PRECISION)
    return higher, total, mixed * shrink[:, None] + product


@triton.jit
def _numbers(stored, dtype: tl.constexpr, CODES: tl.constexpr):
    """The stored numbers without their scales, which the products are multiplied by: those are fewer."""
    if CODES == "fp8":
        return from_e4m3(stored, dtype)
    elif CODES == "int8":
        return from_int8(stored, dtype)
    else:
        return stored.to(dtype)


@triton.jit(do_not_specialize=["cells", "parts"])
def merge(
    partial,
    logsums,
    out,
    firsts,
    lengths,
    chunks,
    offsets,
    rows,
    cells,
    parts,
    dim: tl.constexpr,
    DIM: tl.constexpr,
    PADDED: tl.constexpr,
):
    """Combines the parts of one head of one token. Grid: (tiles, tokens of a tile, heads)."""
    tile, within, head = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    heads = tl.num_programs(2)
    chunk = tl.load(chunks + tile)
    token = tl.load(offsets + tile) + within
    if token < tl.load(lengths + chunk):
        flat_row = (tl.load(firsts + chunk) + token).to(tl.int64)
        part = tl.arange(0, PADDED)
        d = tl.arange(0, DIM)
        cell = (part * cells + (tl.load(rows + chunk) + token).to(tl.int64)) * heads + head
        logs = tl.load(logsums + cell, mask=part < parts, other=float("-inf"))
        weights = tl.exp2(logs - tl.max(logs, 0))
        # A part without context has weight 0, and is not initialized.
        used = (weights > 0.0)[:, None] & (d < dim)[None, :]
        mixed = tl.load(partial + cell[:, None] * dim + d[None, :], mask=used, other=0.0)
        merged = tl.sum(mixed * weights[:, None], 0) / tl.sum(weights, 0)
        tl.store(out + (flat_row * heads + head) * dim + d, merged, mask=d < dim)
