"""Linear layers in blocks as GGUF files store them, of 8, 6 or 4 bits. Activations are not rounded."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from turnout.kernels.integers import INT, LONG, POINTER, IntegerKernels, address, joint_bias
from turnout.kernels.threads import kernel_threads

__all__ = ["BLOCK_TYPES", "SIGNATURES", "BlockKernels", "BlockType", "BlockWeights"]

SIGNATURES = {
    "turnout_block_linear": [POINTER] * 4 + [LONG] * 4 + [INT] * 3,
    "turnout_block_pack": [POINTER] * 2 + [LONG] * 2 + [INT] * 2,
    "turnout_block_gather": [POINTER] * 3 + [LONG] * 2 + [INT],
}


class BlockType(NamedTuple):
    """A type of blocks, by whose number files and kernels know it."""

    number: int
    inputs: int
    """Of a block."""
    stored: int
    """Bytes of a block in a file."""
    packed: int
    """Bytes of a block for the kernels: scales of six bits take eight."""

    def inputs_of(self, rows: Tensor) -> int:
        """How many numbers a row has. rows: uint8 [rows, bytes], as they are stored."""
        return rows.shape[1] // self.stored * self.inputs


BLOCK_TYPES = {
    "q8_0": BlockType(8, 32, 34, 34),
    "q4_0": BlockType(2, 32, 18, 18),
    "q4_k": BlockType(12, 256, 144, 148),
    "q6_k": BlockType(14, 256, 210, 210),
}
WORTHWHILE = 1 << 16
"""Products from which on a second thread is faster than one alone."""


@dataclass(frozen=True)
class BlockWeights:
    """Codes and scales, in the order in which the kernels read them."""

    numbers: Tensor
    """uint8 [panels, blocks, bytes]: of a panel's columns the scales in float16, others, then the codes."""
    bias: Tensor | None
    """float32 [outputs]."""
    inputs: int
    outputs: int
    kind: str
    """A name of `BLOCK_TYPES`."""

    @property
    def number(self) -> int:
        return BLOCK_TYPES[self.kind].number


class BlockKernels:
    """The kernels of weights in blocks."""

    def __init__(self, library: ctypes.CDLL, integers: IntegerKernels) -> None:
        self._library, self._integers = library, integers
        self.panel = integers.panel

    def pack(self, stored: Tensor, kind: str, bias: Tensor | None) -> BlockWeights:
        """Packs a layer. stored: uint8 [outputs, bytes], blocks as a GGUF file has them; bias: float32."""
        of = BLOCK_TYPES[kind]
        outputs, inputs = len(stored), of.inputs_of(stored)
        panels, size = -(-outputs // self.panel), self.panel * of.packed
        numbers = self._integers.memory.room(panels, inputs // of.inputs, size, dtype=torch.uint8)
        stored = stored.contiguous()
        self._library.turnout_block_pack(
            stored.data_ptr(), numbers.data_ptr(), outputs, inputs, of.number, kernel_threads()
        )
        return BlockWeights(numbers, bias, inputs, outputs, kind)

    def joins(self, parts: Sequence[BlockWeights]) -> bool:
        """Says whether layers that read the same input can become one, with outputs side by side."""
        alike = {(part.inputs, part.kind) for part in parts}
        return len(alike) == 1 and all(part.outputs % self.panel == 0 for part in parts)

    def join(self, parts: Sequence[BlockWeights]) -> BlockWeights:
        """Makes one layer of `parts`, for which `joins` says yes."""
        numbers = [part.numbers for part in parts]
        room = self._integers.memory.room(sum(map(len, numbers)), *numbers[0].shape[1:], dtype=torch.uint8)
        outputs = [part.outputs for part in parts]
        bias = joint_bias([part.bias for part in parts], outputs)
        return BlockWeights(torch.cat(numbers, out=room), bias, parts[0].inputs, sum(outputs), parts[0].kind)

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
            weights.number,
            x.dtype == torch.bfloat16,
            kernel_threads() if rows * weights.inputs * weights.outputs > WORTHWHILE else 1,
        )
        return out

    def rows(self, weights: BlockWeights, tokens: Tensor) -> Tensor:
        """Returns rows of the weight, float32 [tokens, inputs]. tokens: int64 [tokens], below `outputs`."""
        out = torch.empty(tokens.shape[0], weights.inputs, dtype=torch.float32)
        self._library.turnout_block_gather(
            weights.numbers.data_ptr(),
            tokens.data_ptr(),
            out.data_ptr(),
            tokens.shape[0],
            weights.inputs,
            weights.number,
        )
        return out
