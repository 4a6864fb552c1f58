"""Encodes weights as codes and scales, independently of layers and files.

Each function works on a few rows at a time, because memory beside the weights is scarce.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from turnout.core.interfaces.layer_share import LayerShare
    from turnout.kernels import CpuKernels

__all__ = ["ChannelCodes", "GroupCodes", "to_e4m3", "to_int4", "to_int8"]

WEIGHTS_AT_ONCE = 2**20
"""4 MiB of float32."""
E4M3_MAX = 448.0
SHRINKS = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75)
"""Ranges that are tried for a group of 4-bit weights, as fractions of its whole range."""


class ChannelCodes(NamedTuple):
    """weight ≈ codes · scale, for each output feature."""

    codes: Tensor
    """[out, in], int8 or float8_e4m3fn."""
    scale: Tensor
    """float32 [out]."""


class GroupCodes(NamedTuple):
    """weight ≈ (codes - zero) · scale, for each output feature and group of inputs."""

    codes: Tensor
    """uint8 [out, in], 0 to 15."""
    scale: Tensor
    """float32 [out, in / group]."""
    zero: Tensor
    """uint8, as `scale`."""


def to_int8(
    weight: Tensor, kernels: CpuKernels | None = None, share: LayerShare | None = None
) -> ChannelCodes:
    """Codes from -127 to 127, so that a negated weight has the negated code.

    kernels: of the CPU, where they are to encode it, to the same codes, by all threads; share: what ranks
    have of the layer, whose codes are those of the whole one.
    """
    split = share is not None and share.splits_inputs
    if kernels is not None and not split and weight.dtype in (torch.float32, torch.bfloat16):
        return ChannelCodes(*kernels.integers.encode(weight))
    scale = _row_maxima(weight, share).div_(127)
    codes = torch.empty(weight.shape, dtype=torch.int8, device=weight.device)
    for rows in _row_slices(weight):
        codes[rows] = (weight[rows].float() / scale[rows, None]).round_().to(torch.int8)
    return ChannelCodes(codes, scale)


def to_e4m3(weight: Tensor, share: LayerShare | None = None) -> ChannelCodes:
    """share: as `to_int8` takes it."""
    scale = _row_maxima(weight, share).div_(E4M3_MAX)
    codes = torch.empty(weight.shape, dtype=torch.float8_e4m3fn, device=weight.device)
    for rows in _row_slices(weight):
        scaled = (weight[rows].float() / scale[rows, None]).clamp_(-E4M3_MAX, E4M3_MAX)
        codes[rows] = scaled.to(torch.float8_e4m3fn)
    return ChannelCodes(codes, scale)


def to_int4(weight: Tensor, group: int) -> GroupCodes:
    """Codes in the range with the smallest squared error, of several that are tried for each group.

    A wide range makes the steps between all codes larger, so clipping outliers is often more exact.
    """
    shape = (len(weight), weight.shape[1] // group)
    codes = torch.empty(weight.shape, dtype=torch.uint8, device=weight.device)
    scale = torch.empty(shape, dtype=torch.float32, device=weight.device)
    zero = torch.empty(shape, dtype=torch.uint8, device=weight.device)
    for rows in _row_slices(weight):
        grouped = weight[rows].float().view(-1, shape[1], group)
        scale[rows], zero[rows] = _best_range(grouped)
        codes[rows] = _codes(grouped, scale[rows], zero[rows]).flatten(1).to(torch.uint8)
    return GroupCodes(codes, scale, zero)


def _best_range(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Scale and zero point of each group; weight: [out, groups, group]."""
    lowest, highest = weight.amin(-1).clamp_(max=0), weight.amax(-1).clamp_(min=0)
    best: tuple[Tensor, Tensor, Tensor] | None = None
    for shrink in SHRINKS:
        scale = ((highest - lowest) * (shrink / 15)).clamp_(min=1e-8)
        zero = (-lowest * shrink / scale).round_().clamp_(0, 15)
        error = (_codes(weight, scale, zero).sub_(zero[..., None]).mul_(scale[..., None]) - weight).square_()
        found = error.sum(-1), scale, zero
        best = found if best is None else _smaller(best, found)
    assert best is not None
    return best[1], best[2].to(torch.uint8)


def _smaller(
    one: tuple[Tensor, Tensor, Tensor], other: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    better = other[0] < one[0]
    return (
        torch.where(better, other[0], one[0]),
        torch.where(better, other[1], one[1]),
        torch.where(better, other[2], one[2]),
    )


def _codes(weight: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    return (weight / scale[..., None]).round_().add_(zero[..., None]).clamp_(0, 15)


def _row_maxima(weight: Tensor, share: LayerShare | None) -> Tensor:
    """The largest magnitude of each whole row, float32 [out]; of a row of zeros 1e-8, which divides too."""
    lowest, highest = torch.aminmax(weight, dim=1)
    maxima = torch.maximum(-lowest, highest).float().clamp_(min=1e-8)
    return maxima if share is None else share.largest(maxima)


def _row_slices(weight: Tensor) -> Iterator[slice]:
    step = max(1, WEIGHTS_AT_ONCE // weight.shape[1])
    for start in range(0, len(weight), step):
        yield slice(start, start + step)
