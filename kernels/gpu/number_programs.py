"""Functions that Triton programs share: products, rounding, and 8-bit floating point by its bits.

By its bits, because every card can shift, and not every card converts e4m3::

    e4m3     s eeee mmm                     bias 7
    float32  s 0000eeee mmm00000…           bias 127, hence the factor 2^120
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = [
    "INTERPRETED",
    "dot",
    "encode_e4m3",
    "from_e4m3",
    "from_int4",
    "from_int8",
    "narrow",
    "round_even",
]

INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)
WHOLE = tl.constexpr(1.5 * 2.0**23)
"""Added to a float32 of less than 2^22 and taken off again, it leaves a whole number, ties to even."""
E4M3_BIAS = tl.constexpr(2.0**120)
E4M3_TOP = tl.constexpr(448.0)
E4M3_NORMAL = tl.constexpr(2.0**-6)
"""The smallest number with a leading one; below it codes count steps of 2^-9."""


@triton.jit
def dot(a, b, PRECISION: tl.constexpr):
    """The matrix product of a and b, in floating point, summed in float32."""
    if INTERPRETED:  # the interpreter takes bfloat16 for integers here
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, input_precision=PRECISION)


@triton.jit
def narrow(x, dtype: tl.constexpr):
    """Rounds float32 to `dtype`, ties to even."""
    if INTERPRETED and dtype == tl.bfloat16:  # the interpreter would cut off
        bits = x.to(tl.int32, bitcast=True)
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & -0x10000
        return bits.to(tl.float32, bitcast=True).to(dtype)
    else:
        return x.to(dtype)


@triton.jit
def round_even(x):
    """Rounds float32 of less than 2^22 to the nearest whole number, ties to even."""
    return (x + WHOLE) - WHOLE


@triton.jit
def encode_e4m3(x):
    """Encodes float32 as float8_e4m3fn, in int8; larger numbers become 448."""
    bits = x.to(tl.int32, bitcast=True)
    size = tl.minimum(tl.abs(x), E4M3_TOP)
    large = size.to(tl.int32, bitcast=True)
    large = ((large + 0x7FFFF + ((large >> 20) & 1)) >> 20) - (120 << 3)
    small = round_even(size * 512.0).to(tl.int32)
    code = tl.where(size < E4M3_NORMAL, small, large)
    return (code | ((bits >> 24) & 0x80)).to(tl.int8)


@triton.jit
def from_int8(codes, dtype: tl.constexpr):
    """Converts int8 to a floating-point type; all of them hold it exactly."""
    if INTERPRETED:  # the interpreter takes bfloat16 for integers
        return codes.to(tl.float32).to(dtype)
    else:
        return codes.to(dtype)


@triton.jit
def from_e4m3(codes, dtype: tl.constexpr):
    """Decodes int8 codes of float8_e4m3fn to a floating-point type; all of them hold the numbers exactly."""
    # The shift extends the sign, whose copies are masked.
    if dtype == tl.bfloat16 and not INTERPRETED:  # two at a time
        half = (codes.to(tl.int16) << 4) & -0x7810
        return half.to(tl.bfloat16, bitcast=True) * E4M3_BIAS
    else:
        bits = (codes.to(tl.int32) << 20) & -0x78100000
        return (bits.to(tl.float32, bitcast=True) * E4M3_BIAS).to(dtype)


@triton.jit
def from_int4(codes, dtype: tl.constexpr):
    """Converts uint8 codes from 0 to 15, less 8, to a floating-point type."""
    if dtype == tl.bfloat16 and not INTERPRETED:  # as the last bits of 128 and more
        return (codes.to(tl.int16) | 0x4300).to(tl.bfloat16, bitcast=True) - 136.0
    else:
        return from_int8(codes.to(tl.int8) - 8, dtype)
