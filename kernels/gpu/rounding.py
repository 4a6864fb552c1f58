"""The Triton program of `rounding_programs.py` as a function of tensors."""

from __future__ import annotations

from typing import Literal

import torch
import triton
from torch import Tensor

from turnout.kernels.gpu.rounding_programs import quantize_rows

__all__ = ["quantize"]


def quantize(x: Tensor, kind: Literal["int8", "fp8"]) -> tuple[Tensor, Tensor]:
    """Quantizes the rows of `x`, [rows, size]; returns int8 codes [rows, size] and float32 scales [rows]."""
    rows, size = x.shape
    codes = torch.empty((rows, size), dtype=torch.int8, device=x.device)
    scales = torch.empty(rows, dtype=torch.float32, device=x.device)
    padded = triton.next_power_of_2(size)
    quantize_rows[rows,](
        x,
        codes,
        scales,
        size,
        x.stride(0),
        SIZE=padded,
        FLOATS=kind == "fp8",
        num_warps=min(16, max(1, padded // 512)),
    )
    return codes, scales
