"""Matrix products with quantized weights, by Triton kernels: functions of tensors."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
import triton
from torch import Tensor

from turnout.kernels.gpu.rounding import quantize
from turnout.plugins.quantization.gpu.product_programs import both as both_codes
from turnout.plugins.quantization.gpu.product_programs import join, weight_only

__all__ = ["Kind", "Weights", "multiply", "multiply_codes", "quantize"]

Kind = Literal["int8", "fp8", "int4"]

PROGRAMS = 256
"""Programs that a kernel should have at least, two for each multiprocessor of an H100: tiles are narrower, or
inputs are cut into parts, to get as many."""
FEW_ROWS = 64
"""Rows up to which inputs are cut into parts. Their number depends on the weights alone, not on the rows."""
MOST_PARTS = 8
"""Parts into which inputs are cut at most."""
FEWEST_STEPS = 4
"""Steps that a part has at least."""
JOINED = 512
"""Outputs whose parts a program adds up."""


class Weights(NamedTuple):
    """Quantized weights: weight = code · scale + offset, for each output and group of inputs."""

    kind: Kind
    codes: Tensor
    """``int8``: int8 [outputs, inputs]. ``fp8``: the bits of e4m3 in int8 [outputs, inputs]. ``int4``: uint8
    [outputs, inputs / 2], where a byte holds inputs j (low half) and j + group / 2 (high half) of a group,
    each raised by 8."""
    scale: Tensor
    """float32 [outputs, groups]."""
    offset: Tensor | None = None
    """float32 [outputs, groups]; None: no offset."""
    group: int = 0
    """Inputs in a group; 0: all inputs are one group, without an offset."""

    @property
    def outputs(self) -> int:
        return self.codes.shape[0]

    @property
    def inputs(self) -> int:
        return self.codes.shape[1] * (2 if self.kind == "int4" else 1)

    @property
    def step(self) -> int:
        """Inputs that a program multiplies at a time, unless its tile is narrow or tall."""
        if self.kind == "int4":
            return self.group
        return 128 if self.scale.shape[1] == 1 else min(128, self.group & -self.group)


class _Tiling(NamedTuple):
    """How a product is cut into programs, each of which fits in 99 KiB of shared memory."""

    rows: int
    columns: int
    step: int
    parts: int
    span: int
    """Inputs of a part."""

    def grid(self, rows: int, outputs: int) -> tuple[int, int, int]:
        return triton.cdiv(outputs, self.columns), triton.cdiv(rows, self.rows), self.parts

    @property
    def options(self) -> dict[str, int]:
        large = self.rows > FEW_ROWS
        return {"num_warps": 8 if large else 4, "num_stages": 3 if large else 4}


def _tiling(rows: int, weights: Weights, both: bool = False) -> _Tiling:
    """Chooses the tiling of a product. both: `x` is quantized, too."""
    outputs, inputs, step = weights.outputs, weights.inputs, weights.step
    if rows > FEW_ROWS:
        # A group's sums are kept apart until they are scaled, which takes as many registers again.
        step = step if weights.kind == "int4" or both else min(step, 64)
        columns = 64 if weights.group else 128
        # One for each multiprocessor at least; a number is summed in the same order whatever tile it is in.
        while columns > 32 and triton.cdiv(rows, 128) * triton.cdiv(outputs, columns) < PROGRAMS // 2:
            columns //= 2
        return _Tiling(128, columns, step, 1, triton.cdiv(inputs, step) * step)
    columns = 64 if weights.kind == "int4" else 32  # of as many bytes
    if both and outputs <= columns * PROGRAMS:  # rather than in parts, which take a second kernel
        columns, step = 16, 256
    steps = triton.cdiv(inputs, step)
    wanted = triton.cdiv(PROGRAMS, triton.cdiv(outputs, columns))
    parts = max(1, min(MOST_PARTS, wanted, steps // FEWEST_STEPS))
    span = triton.cdiv(steps, parts) * step
    return _Tiling(max(16, triton.next_power_of_2(rows)), columns, step, triton.cdiv(inputs, span), span)


def multiply(x: Tensor, weights: Weights, bias: Tensor | None) -> Tensor:
    """Returns x · weightsᵀ + bias, [rows, outputs] in the dtype of `x`: [rows, inputs], in floating point."""
    rows, outputs = len(x), weights.outputs
    tiling = _tiling(rows, weights)
    target, out = _targets(x, x.dtype, tiling, outputs, torch.float32)
    weight_only[tiling.grid(rows, outputs)](
        x,
        weights.codes,
        weights.scale,
        weights.scale if weights.offset is None else weights.offset,
        weights.scale if bias is None else bias,
        target,
        rows,
        outputs,
        weights.inputs,
        tiling.span,
        x.stride(0),
        weights.codes.stride(0),
        weights.scale.shape[1],
        GROUP=weights.group,
        ROWS=tiling.rows,
        COLUMNS=tiling.columns,
        STEP=tiling.step,
        CODES=weights.kind,
        OFFSET=weights.offset is not None,
        BIAS=bias is not None,
        WHOLE=tiling.parts == 1,
        # float32 means float32, not the 10 bits of tf32.
        PRECISION="ieee" if x.dtype == torch.float32 else "tf32",
        **tiling.options,
    )
    if tiling.parts > 1:
        _join(target, None, weights.scale if weights.group == 0 else None, bias, out)
    return out


def multiply_codes(
    x: Tensor, x_scale: Tensor, weights: Weights, bias: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """Returns x · x_scale · weightsᵀ + bias, [rows, outputs] in `dtype`.

    x: codes [rows, inputs] of the weights' kind, int8 or fp8. x_scale: float32 [rows]. weights: one group.
    """
    rows, outputs = len(x), weights.outputs
    tiling = _tiling(rows, weights, both=True)
    floats = weights.kind == "fp8"
    target, out = _targets(x, dtype, tiling, outputs, torch.float32 if floats else torch.int32)
    both_codes[tiling.grid(rows, outputs)](
        x,
        weights.codes,
        x_scale,
        weights.scale,
        weights.scale if bias is None else bias,
        target,
        rows,
        outputs,
        weights.inputs,
        tiling.span,
        x.stride(0),
        weights.codes.stride(0),
        ROWS=tiling.rows,
        COLUMNS=tiling.columns,
        STEP=tiling.step,
        FLOATS=floats,
        BIAS=bias is not None,
        WHOLE=tiling.parts == 1,
        **tiling.options,
    )
    if tiling.parts > 1:
        _join(target, x_scale, weights.scale, bias, out)
    return out


def _targets(
    x: Tensor, dtype: torch.dtype, tiling: _Tiling, outputs: int, summed: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Allocates what the kernel writes and what is returned: one tensor if there is a single part."""
    out = torch.empty((len(x), outputs), dtype=dtype, device=x.device)
    if tiling.parts == 1:
        return out, out
    return torch.empty((tiling.parts, *out.shape), dtype=summed, device=x.device), out


def _join(
    parts: Tensor, x_scale: Tensor | None, scale: Tensor | None, bias: Tensor | None, out: Tensor
) -> None:
    """Adds up `parts`, [parts, rows, outputs], scales the sums and adds the bias; writes them to `out`."""
    count, rows, outputs = parts.shape
    join[rows, triton.cdiv(outputs, JOINED)](
        parts,
        parts if x_scale is None else x_scale,
        parts if scale is None else scale,
        parts if bias is None else bias,
        out,
        count,
        rows,
        outputs,
        BLOCK=JOINED,
        X_SCALE=x_scale is not None,
        SCALE=scale is not None,
        BIAS=bias is not None,
    )
