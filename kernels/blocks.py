"""Linear layers of 8 or 4 bits in blocks of 32 inputs. Activations are not rounded."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from turnout.kernels.integers import INT, LONG, POINTER, IntegerKernels, address, joint_bias
from turnout.kernels.threads import kernel_threads

__all__ = ["BLOCK", "SIGNATURES", "BlockKernels", "BlockWeights"]

SIGNATURES = {
    "turnout_block_linear": [POINTER] * 4 + [LONG] * 4 + [INT] * 3,
    "turnout_block_pack": [POINTER] * 2 + [LONG] * 2 + [INT] * 2,
    "turnout_block_gather": [POINTER] * 3 + [LONG] * 2 + [INT],
}
BLOCK = 32
"""Inputs that share a scale."""
STORED_BYTES = {8: 34, 4: 18}
"""Of a block in a GGUF file, by bits: a scale in float16, then codes."""
WORTHWHILE = 1 << 16
"""Products from which on a second thread is faster than one alone."""


@dataclass(frozen=True)
class BlockWeights:
    """weight = code · scale, in the order in which the kernels read them."""

    numbers: Tensor
    """uint8 [panels, inputs / 32, bytes]: of a panel's columns the scales in float16, then their codes."""
    bias: Tensor | None
    """float32 [outputs]."""
    inputs: int
    outputs: int
    bits: int


class BlockKernels:
    """The kernels of weights in blocks."""

    def __init__(self, library: ctypes.CDLL, integers: IntegerKernels) -> None:
        self._library, self._integers = library, integers
        self.panel = integers.panel

    def pack(self, stored: Tensor, bits: int, bias: Tensor | None) -> BlockWeights:
        """Packs a layer. stored: uint8 [outputs, bytes], blocks as a GGUF file has them; bias: float32."""
        outputs, inputs = len(stored), stored.shape[1] // STORED_BYTES[bits] * BLOCK
        panels, size = -(-outputs // self.panel), self.panel * (2 + BLOCK * bits // 8)
        numbers = self._integers.room(panels, inputs // BLOCK, size, dtype=torch.uint8)
        stored = stored.contiguous()
        self._library.turnout_block_pack(
            stored.data_ptr(), numbers.data_ptr(), outputs, inputs, bits, kernel_threads()
        )
        return BlockWeights(numbers, bias, inputs, outputs, bits)

    def joins(self, parts: Sequence[BlockWeights]) -> bool:
        """Says whether layers that read the same input can become one, with outputs side by side."""
        alike = {(part.inputs, part.bits) for part in parts}
        return len(alike) == 1 and all(part.outputs % self.panel == 0 for part in parts)

    def join(self, parts: Sequence[BlockWeights]) -> BlockWeights:
        """Makes one layer of `parts`, for which `joins` says yes."""
        numbers = [part.numbers for part in parts]
        room = self._integers.room(sum(map(len, numbers)), *numbers[0].shape[1:], dtype=torch.uint8)
        outputs = [part.outputs for part in parts]
        bias = joint_bias([part.bias for part in parts], outputs)
        return BlockWeights(torch.cat(numbers, out=room), bias, parts[0].inputs, sum(outputs), parts[0].bits)

    def linear(self, x: Tensor, weights: BlockWeights) -> Tensor:
        """Computes a packed layer: x, float32 or bfloat16 [rows, inputs], to [rows, outputs] in x's dtype."""
        if x.dtype not in (torch.float32, torch.bfloat16):
            raise TypeError(f"linear layers in blocks take float32 and bfloat16, not {x.dtype}")
        if x.shape[1] != weights.inputs:
            raise ValueError(f"{weights.inputs} inputs are expected, not {x.shape[1]}")
        x = x if x.stride(1) == 1 else x.contiguous()
        rows = x.shape[0]
        out = x.new_empty(rows, weights.outputs)
        self._library.turnout_block_linear(
            weights.numbers.data_ptr(),
            address(weights.bias),
            x.data_ptr(),
            out.data_ptr(),
            rows,
            weights.inputs,
            weights.outputs,
            x.stride(0),
            weights.bits,
            x.dtype == torch.bfloat16,
            kernel_threads() if rows * weights.inputs * weights.outputs > WORTHWHILE else 1,
        )
        return out

    def rows(self, weights: BlockWeights, tokens: Tensor) -> Tensor:
        """Returns rows of the weight, float32 [tokens, inputs]. tokens: int64 [tokens], below `outputs`."""
        out = torch.empty(tokens.shape[0], weights.inputs)
        self._library.turnout_block_gather(
            weights.numbers.data_ptr(),
            tokens.data_ptr(),
            out.data_ptr(),
            tokens.shape[0],
            weights.inputs,
            weights.bits,
        )
        return out
