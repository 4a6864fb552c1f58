"""Writes keys and values to their slots, with rotation and rounding in the same pass."""

from __future__ import annotations

import triton
from torch import Tensor

from turnout.plugins.kv_backends.paged.device.kernels.lanes import Lanes
from turnout.plugins.kv_backends.paged.device.kernels.write_programs import write_heads

__all__ = ["rotated_write"]


def rotated_write(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    slots: Tensor,
    lanes: Lanes,
    rotation: tuple[Tensor, Tensor] | None = None,
) -> None:
    """Writes k and v, [tokens, kv_heads, head_dim], into `lanes` at `slots`, int32 or int64 [tokens].

    rotation: cosine and sine, contiguous [tokens, 1, head_dim], to rotate the keys that are written, and q,
    [tokens, heads, head_dim], in place; None: both are rotated already. Negative slots are skipped.
    """
    (tokens, heads, dim), kv_heads = q.shape, k.shape[1]
    cosine, sine = rotation or (q, q)
    share = heads // kv_heads
    write_heads[tokens, kv_heads](
        q,
        k,
        v,
        cosine,
        sine,
        slots,
        lanes.k,
        lanes.v,
        lanes.k if lanes.k_scales is None else lanes.k_scales,
        lanes.v if lanes.v_scales is None else lanes.v_scales,
        q.stride(0),
        q.stride(1),
        k.stride(0),
        k.stride(1),
        v.stride(0),
        v.stride(1),
        lanes.k.stride(0),
        lanes.k.stride(1),
        *lanes.scale_strides,
        share=share,
        half=dim // 2,
        SHARE=triton.next_power_of_2(share),
        HALF=triton.next_power_of_2(dim // 2),
        ROTATES=rotation is not None,
        CODES=lanes.codes,
        num_warps=1,
    )
