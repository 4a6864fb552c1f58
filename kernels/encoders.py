"""What the compiled kernels compute between the matrix products of an encoder's layers."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from turnout.kernels.integers import FLOAT, INT, LONG, POINTER, address
from turnout.kernels.threads import kernel_threads

__all__ = ["SIGNATURES", "EncoderKernels"]

SIGNATURES = {
    "turnout_layer_norm": [POINTER] * 5 + [LONG] * 2 + [FLOAT] + [INT] * 2,
    "turnout_gelu": [POINTER] + [LONG] * 2 + [INT] * 3,
    "turnout_gelu_gate": [POINTER] * 2 + [LONG] * 2 + [INT] * 2,
}


class EncoderKernels:
    """Kernels of tensors [rows, size] on the CPU, contiguous, float32 or bfloat16."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def layer_norm(
        self, x: Tensor, delta: Tensor | None, weight: Tensor, bias: Tensor | None, eps: float, out: Tensor
    ) -> Tensor:
        """Adds `delta` to x in place, and writes the norm of the sum into `out`, which may be x."""
        x_like = [each for each in (x, delta, weight, bias, out) if each is not None]
        if any(each.dtype != x.dtype or not each.is_contiguous() for each in x_like):
            raise TypeError(f"a layer norm takes contiguous tensors of one dtype, {x.dtype}")
        self._library.turnout_layer_norm(
            *(address(each) for each in (x, delta, weight, bias, out)),
            *x.shape,
            eps,
            _half(x),
            kernel_threads(),
        )
        return out

    def gelu(self, x: Tensor, *, by_tanh: bool) -> Tensor:
        """Computes GELU, or its approximation by tanh, in place; returns x."""
        self._library.turnout_gelu(x.data_ptr(), *x.shape, by_tanh, _half(x), kernel_threads())
        return x

    def gelu_gate(self, both: Tensor) -> Tensor:
        """Returns GELU of the first half of each row, times its second half. both: [rows, 2 * size]."""
        out = both.new_empty(both.shape[0], both.shape[1] // 2)
        self._library.turnout_gelu_gate(
            both.data_ptr(), out.data_ptr(), *out.shape, _half(both), kernel_threads()
        )
        return out


def _half(x: Tensor) -> bool:
    if x.dtype not in (torch.float32, torch.bfloat16):
        raise TypeError(f"compiled kernels take float32 and bfloat16, not {x.dtype}")
    return x.dtype == torch.bfloat16
