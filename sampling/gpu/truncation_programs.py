"""Triton program of top-k and top-p without a sort.

Non-negative floats order as their bits do. So a bisection over the bits finds the weight of the k-th
most likely token, by counting the tokens above each candidate. Another one, by summing them, finds the last
weight within top_p. Of the tokens with exactly that weight, the ones with the lowest ids are kept: their
number is known, and a bisection over ids finds the last. One program handles a row, which stays in the GPU's
cache.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["truncate_rows"]

INFINITY = tl.constexpr(0x7F800000)
"""Bits of a float32 above all weights."""
SMALLEST = tl.constexpr(1e-30)


@triton.jit
def truncate_rows(weights, limits, shares, whole, out, size, BLOCK: tl.constexpr):
    """out = weights, or 0 for excluded tokens. Grid: (rows,).

    limits: int32, top_k; shares: float32, top_p, of the sum of all weights where `whole` is not 0, otherwise
    of those within top_k. At least one token is kept.
    """
    row = tl.program_id(0).to(tl.int64)
    weights += row * size
    limit = tl.load(limits + row)
    # Tokens above these bits are kept, and those of equal bits below that id.
    bits, upto = tl.full((), -1, tl.int32), tl.full((), 0, tl.int32)
    if limit < size:
        low, bits = tl.full((), -1, tl.int32), tl.full((), INFINITY, tl.int32)
        while bits - low > 1:
            middle = low + (bits - low) // 2
            if _count(weights, size, middle, BLOCK) >= limit:
                low = middle
            else:
                bits = middle
        upto = _id_after(weights, size, bits, limit - _count(weights, size, bits, BLOCK), -1, 0, BLOCK)

    share = tl.load(shares + row)
    floor, last = bits, upto
    if share < 1.0:
        if tl.load(whole + row) != 0:
            total = _sum(weights, size, -1, -1, 0, BLOCK)
        else:
            total = _sum(weights, size, -1, bits, upto, BLOCK)
        wanted = tl.maximum(total * share, SMALLEST)
        low, floor = tl.full((), -1, tl.int32), tl.full((), INFINITY, tl.int32)
        while floor - low > 1:
            middle = low + (floor - low) // 2
            if _sum(weights, size, middle, bits, upto, BLOCK) >= wanted:
                low = middle
            else:
                floor = middle
        each = tl.maximum(floor.to(tl.float32, bitcast=True), SMALLEST)
        missing = wanted - _sum(weights, size, floor, bits, upto, BLOCK)
        ties = tl.minimum(tl.ceil(missing / each), size * 1.0).to(tl.int32)
        last = _id_after(weights, size, floor, ties, bits, upto, BLOCK)

    for start in range(0, size, BLOCK):
        id = start + tl.arange(0, BLOCK)
        weight = tl.load(weights + id, mask=id < size, other=0.0)
        own = weight.to(tl.int32, bitcast=True)
        kept = _above(own, id, bits, upto) & _above(own, id, floor, last)
        tl.store(out + row * size + id, tl.where(kept, weight, 0.0), mask=id < size)


@triton.jit
def _above(own, id, bits, upto):
    return (own > bits) | ((own == bits) & (id < upto))


@triton.jit
def _count(weights, size, bits, BLOCK: tl.constexpr):
    """The number of tokens above `bits`."""
    found = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, size, BLOCK):
        id = start + tl.arange(0, BLOCK)
        own = tl.load(weights + id, mask=id < size, other=0.0).to(tl.int32, bitcast=True)
        found += ((own > bits) & (id < size)).to(tl.int32)
    return tl.sum(found, 0)


@triton.jit
def _sum(weights, size, bits, least, upto, BLOCK: tl.constexpr):
    """The sum of the weights above `bits`, of tokens that (least, upto) keeps."""
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, size, BLOCK):
        id = start + tl.arange(0, BLOCK)
        weight = tl.load(weights + id, mask=id < size, other=0.0)
        own = weight.to(tl.int32, bitcast=True)
        total += tl.where((own > bits) & _above(own, id, least, upto), weight, 0.0)
    return tl.sum(total, 0)


@triton.jit
def _id_after(weights, size, bits, wanted, least, upto, BLOCK: tl.constexpr):
    """The smallest id below which `wanted` tokens that (least, upto) keeps have these bits, or all do."""
    low, high = tl.full((), 0, tl.int32), size + tl.full((), 0, tl.int32)
    while low < high:
        middle = low + (high - low) // 2
        found = tl.zeros((BLOCK,), tl.int32)
        for start in range(0, middle, BLOCK):
            id = start + tl.arange(0, BLOCK)
            own = tl.load(weights + id, mask=id < size, other=0.0).to(tl.int32, bitcast=True)
            found += ((own == bits) & (id < middle) & _above(own, id, least, upto)).to(tl.int32)
        if tl.sum(found, 0) >= wanted:
            high = middle
        else:
            low = middle + 1
    return low
