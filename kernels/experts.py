"""Computes the experts of a layer in one native call, or in one with other layers."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from turnout.core.errors import CollectiveError
from turnout.kernels.compiled import CpuKernels
from turnout.kernels.integers import LONG, POINTER
from turnout.kernels.linears import LinearStruct, LinearWeights, linear_struct
from turnout.kernels.threads import kernel_threads

__all__ = ["Bounds", "ExpertWeights", "MixtureStruct", "MixtureWeights", "NativeExperts"]


class ExpertWeights(NamedTuple):
    """An expert: gate and up projection side by side, and the one down."""

    gate_up: LinearWeights
    down: LinearWeights


class Bounds(NamedTuple):
    """(up + 1) · gate · sigmoid(slope · gate), with gate at most `limit` and up at most that far from 0."""

    slope: float
    limit: float


class NativeExperts:
    """The experts of a layer, all of one shape."""

    def __init__(
        self,
        kernels: CpuKernels,
        experts: Sequence[ExpertWeights],
        bounds: Bounds | None = None,
        before: int = 0,
        group: int | None = None,
    ) -> None:
        """bounds: of what lies between an expert's products; None: that is silu(gate) · up.

        before: how many experts other ranks have before these, which `chosen` counts; those behind, too, are
        left to others. group: native, of ranks that each have a part of every expert, and add up what comes
        out; by it, they exchange what integers are rounded by.
        """
        self._kernels = kernels
        self._weights = experts  # the table has their addresses
        self._bounds, self._before, self._group = bounds, before, group
        linears = [linear_struct(each, kernels.integers) for expert in experts for each in expert]
        self._table = (LinearStruct * len(linears))(*linears)

    @property
    def alone(self) -> bool:
        """Whether no other rank has a part of the experts, or of any of them; else they are shared out."""
        return self._before == 0 and self._group is None

    def __len__(self) -> int:
        return len(self._weights)

    def mixture(self, router: LinearStruct, top: int, normalized: bool) -> MixtureStruct:
        """Describes the experts and what scores them. This object must live as long as the result is used."""
        bounds = self._bounds or Bounds(0.0, 0.0)
        sizes = len(self), top, normalized, self._weights[0].down.inputs, self._bounds is not None
        return MixtureStruct(router, ctypes.addressof(self._table), *sizes, *bounds)

    def __call__(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """Returns the weighted sums of the chosen experts, [tokens, size] in x's dtype.

        x: [tokens, size], float32 or bfloat16; chosen: int64 [tokens, top]; weights: float32 [tokens, top].
        """
        x, chosen, weights = x.contiguous(), chosen.contiguous(), weights.float().contiguous()
        out = torch.empty_like(x)
        bounds = self._bounds or Bounds(0.0, 0.0)
        mix = _Mix(
            *(*chosen.shape, x.shape[1], self._weights[0].down.inputs),
            *(self._bounds is not None, x.dtype == torch.bfloat16, kernel_threads(), self._before),
            *bounds,
            *(each.data_ptr() for each in (x, chosen, weights, out)),
            self._group,
        )
        if not self._kernels.experts(self._table, len(self._weights), mix):
            raise CollectiveError("another rank of the engine is gone")
        return out


class MixtureWeights(NamedTuple):
    """A router, which takes the experts with the highest scores, and the experts."""

    router: LinearWeights
    """Scores all experts."""
    top: int
    """How many a token goes to."""
    normalized: bool
    """Whether an expert weighs by its likelihood among those that were taken; else among all."""
    experts: NativeExperts


class MixtureStruct(ctypes.Structure):
    """``Mixture`` of native/experts.h."""

    _fields_ = (
        ("router", LinearStruct),
        ("experts", POINTER),
        *((name, LONG) for name in ("count", "top", "normalized", "inner", "gate")),
        *((name, ctypes.c_double) for name in ("slope", "limit")),
    )


class _Mix(ctypes.Structure):
    """``Mix`` of native/experts.h."""

    _fields_ = (
        *((name, LONG) for name in ("tokens", "top", "size", "inner", "gate", "half", "threads", "before")),
        *((name, ctypes.c_double) for name in ("slope", "limit")),
        *((name, POINTER) for name in ("x", "chosen", "weights", "out", "group")),
    )
