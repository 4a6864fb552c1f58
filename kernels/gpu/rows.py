"""The Triton programs of `row_programs.py` as functions of tensors."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from turnout.kernels.gpu.row_programs import codes_row, nibbles_row

__all__ = ["MOST_OUTPUTS", "multiply_codes_row", "multiply_nibbles_row"]

MOST_OUTPUTS = {"int8": 1_000_000, "fp8": 16_384}
"""Outputs up to which a row of codes is multiplied faster so than by tiles, as measured on an H200."""
INT8 = (8, 256, 4)
FP8 = (8, 512, 4)
"""Outputs of a program, words of 4 inputs that it multiplies at a time, and its warps."""
INT4 = (2, 1024, 4)
"""Outputs, bytes, and warps."""


def multiply_codes_row(
    x: Tensor, codes: Tensor, scale: Tensor, bias: Tensor | None, *, floats: bool
) -> Tensor:
    """Returns x · weightsᵀ + bias, [1, outputs] in the dtype of x, which is rounded to 8 bits, too.

    x: [1, inputs], contiguous, of a multiple of 16 inputs. codes: int8 [outputs, inputs], contiguous: numbers
    or, with `floats`, the bits of e4m3. scale: float32 [outputs].
    """
    outputs, inputs = codes.shape
    out = torch.empty((1, outputs), dtype=x.dtype, device=x.device)
    columns, words, warps = FP8 if floats else INT8
    codes_row[triton.cdiv(outputs, columns),](
        x,
        codes.view(torch.int32),
        scale,
        scale if bias is None else bias,
        out,
        outputs,
        inputs,
        inputs // 4,
        COLUMNS=columns,
        WORDS=words,
        WHOLE=triton.next_power_of_2(inputs),
        FLOATS=floats,
        BIAS=bias is not None,
        num_warps=warps,
    )
    return out


def multiply_nibbles_row(
    x: Tensor, codes: Tensor, scale: Tensor, offset: Tensor | None, bias: Tensor | None, group: int
) -> Tensor:
    """Returns x · weightsᵀ + bias, [1, outputs] in the dtype of x: [1, inputs], contiguous.

    codes, scale, offset: as `DeviceWeights` has them for 4 bits, in groups of a power of two from 32 on.
    """
    outputs = len(codes)
    out = torch.empty((1, outputs), dtype=x.dtype, device=x.device)
    columns, size, warps = INT4
    nibbles_row[triton.cdiv(outputs, columns),](
        x,
        codes,
        scale,
        scale if offset is None else offset,
        scale if bias is None else bias,
        out,
        outputs,
        scale.shape[1],
        codes.stride(0),
        COLUMNS=columns,
        GROUP=group,
        GROUPS=2 * size // group,
        OFFSET=offset is not None,
        BIAS=bias is not None,
        num_warps=warps,
    )
    return out
