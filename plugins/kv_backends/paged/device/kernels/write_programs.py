"""Triton program that writes to a pool: rotation, rounding to the stored dtype and the write, in one pass.

A program handles one KV head of one token::

    queries [share, head_dim]   rotated in place
    key     [head_dim]          rotated and written to its slot, as it is or as 8-bit codes with a scale
    value   [head_dim]          written in the same way, but not rotated
"""

from __future__ import annotations

import triton
import triton.language as tl

from turnout.kernels.gpu.number_programs import encode_e4m3, narrow, round_even

__all__ = ["write_heads"]

SMALLEST = tl.constexpr(2.0**-126)
"""The smallest scale, so that a zero vector can be divided by it."""


@triton.jit
def write_heads(
    q,
    k,
    v,
    cosine,
    sine,
    slots,
    pool_k,
    pool_v,
    scales_k,
    scales_v,
    q_token,
    q_head,
    k_token,
    k_head,
    v_token,
    v_head,
    pool_slot,
    pool_head,
    scale_slot,
    scale_head,
    share: tl.constexpr,
    half: tl.constexpr,
    SHARE: tl.constexpr,
    HALF: tl.constexpr,
    ROTATES: tl.constexpr,
    CODES: tl.constexpr,
):
    """Grid: (tokens, kv_heads). A token with a negative slot is padding, and not written."""
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    slot = tl.load(slots + token).to(tl.int64)
    if slot >= 0:
        d = tl.arange(0, HALF)
        inside = d < half
        at_key = k + token * k_token + head * k_head + d
        at_value = v + token * v_token + head * v_head + d
        key = tl.load(at_key, mask=inside, other=0.0).to(tl.float32)
        key_rest = tl.load(at_key + half, mask=inside, other=0.0).to(tl.float32)
        value = tl.load(at_value, mask=inside, other=0.0).to(tl.float32)
        value_rest = tl.load(at_value + half, mask=inside, other=0.0).to(tl.float32)
        if ROTATES:
            # Both halves of a head are rotated by the same angles.
            cos = tl.load(cosine + token * 2 * half + d, mask=inside, other=0.0).to(tl.float32)
            sin = tl.load(sine + token * 2 * half + d, mask=inside, other=0.0).to(tl.float32)
            turned = narrow(key * cos - key_rest * sin, k.dtype.element_ty).to(tl.float32)
            key_rest = narrow(key_rest * cos + key * sin, k.dtype.element_ty).to(tl.float32)
            key = turned
            member = tl.arange(0, SHARE)
            there = (member < share)[:, None] & inside[None, :]
            at = q + token * q_token + (head * share + member)[:, None] * q_head + d[None, :]
            one = tl.load(at, mask=there, other=0.0).to(tl.float32)
            other = tl.load(at + half, mask=there, other=0.0).to(tl.float32)
            tl.store(at, narrow(one * cos[None, :] - other * sin[None, :], q.dtype.element_ty), mask=there)
            tl.store(
                at + half, narrow(other * cos[None, :] + one * sin[None, :], q.dtype.element_ty), mask=there
            )
        at_slot = slot * pool_slot + head * pool_head + d
        at_scale = slot * scale_slot + head * scale_head
        _store(key, key_rest, pool_k + at_slot, scales_k + at_scale, inside, half, CODES)
        _store(value, value_rest, pool_v + at_slot, scales_v + at_scale, inside, half, CODES)


@triton.jit
def _store(one, rest, at, at_scale, inside, half: tl.constexpr, CODES: tl.constexpr):
    """Writes both halves of a head's vector, float32, to its slot."""
    if CODES == "none":
        tl.store(at, narrow(one, at.dtype.element_ty), mask=inside)
        tl.store(at + half, narrow(rest, at.dtype.element_ty), mask=inside)
    else:
        largest = tl.maximum(tl.max(tl.abs(one), 0), tl.max(tl.abs(rest), 0))
        top = 448.0 if CODES == "fp8" else 127.0
        scale = narrow(tl.maximum(tl.div_rn(largest, top), SMALLEST), at_scale.dtype.element_ty)
        tl.store(at_scale, scale)
        # Divided by the rounded scale, so that its rounding adds no error.
        tl.store(at, _encode(one, scale.to(tl.float32), CODES), mask=inside)
        tl.store(at + half, _encode(rest, scale.to(tl.float32), CODES), mask=inside)


@triton.jit
def _encode(numbers, scale, CODES: tl.constexpr):
    """float32 to int8 codes."""
    scaled = tl.div_rn(numbers, tl.zeros_like(numbers) + scale)
    if CODES == "fp8":
        return encode_e4m3(scaled)
    else:
        return round_even(scaled).to(tl.int32).to(tl.int8)
