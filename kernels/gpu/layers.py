"""The Triton programs of `layer_programs.py` as functions of tensors."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from turnout.kernels.gpu.layer_programs import gate_rows, norm_rows, rotate_heads

__all__ = ["GpuKernels"]

GATE_BLOCK = 1024
"""Outputs that one program gates."""
NUMBERS_PER_WARP = 512
"""Of a norm's row."""


class GpuKernels:
    """Triton's kernels. Implements FusedKernels.

    Tensors are float32, bfloat16 or float16; rows are contiguous, of any stride between rows.
    """

    def norm(self, x: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> Tensor:
        """Returns the root mean square norm of x, after adding `delta` to x in place. x: [rows, size]."""
        rows, size = x.shape
        out = torch.empty((rows, size), dtype=x.dtype, device=x.device)
        added = x if delta is None else delta
        padded = triton.next_power_of_2(size)
        norm_rows[rows,](
            x,
            added,
            weight,
            out,
            eps,
            x.stride(0),
            added.stride(0),
            size=size,
            SIZE=padded,
            ADDS=delta is not None,
            num_warps=min(16, max(1, padded // NUMBERS_PER_WARP)),
        )
        return out

    def gate(self, both: Tensor) -> Tensor:
        """Returns silu of the first half of each row, times the second half. both: [rows, 2 * size]."""
        rows, size = both.shape[0], both.shape[1] // 2
        out = both.new_empty(rows, size)
        gate_rows[rows, triton.cdiv(size, GATE_BLOCK)](both, out, both.stride(0), size, BLOCK=GATE_BLOCK)
        return out

    def rotate(self, x: Tensor, cosine: Tensor, sine: Tensor) -> None:
        """Rotates x in place.

        x: [tokens, heads, head_dim], of any stride between tokens; cosine, sine: [tokens, 1, head_dim].
        """
        tokens, heads, dim = x.shape
        rotate_heads[tokens,](
            x,
            cosine,
            sine,
            x.stride(0),
            x.stride(1),
            heads=heads,
            half=dim // 2,
            HEADS=triton.next_power_of_2(heads),
            HALF=triton.next_power_of_2(dim // 2),
        )
