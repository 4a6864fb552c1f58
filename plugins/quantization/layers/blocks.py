"""Layers whose weights are codes with scales for a few inputs each, as GGUF files store them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from turnout.kernels import CpuKernels
from turnout.kernels.blocks import BLOCK_TYPES, BlockKernels, BlockWeights
from turnout.models.decoder.packed import LayerCapabilities
from turnout.models.gguf.numbers import dequantized
from turnout.plugins.quantization.layers.base import DecodedLinear

__all__ = ["BlockEmbedding", "BlockLinear", "NativeBlockLinear", "packed_blocks"]


class BlockLinear(DecodedLinear):
    """Decodes blocks as it multiplies, by PyTorch's operators; activations are not quantized."""

    blocks: Tensor

    def __init__(self, blocks: Tensor, kind: str, bias: Tensor | None) -> None:
        """blocks: uint8 [out, bytes], as they are stored."""
        super().__init__(BLOCK_TYPES[kind].inputs_of(blocks), len(blocks), bias)
        self.register_buffer("blocks", blocks)
        self._kind = kind

    def decode(self, start: int, stop: int) -> Tensor:
        return dequantized(self.blocks[start:stop], self._kind)


class NativeBlockLinear(nn.Module):
    """Computed by compiled kernels, as its blocks' numbers in float32 would be; activations as they are.

    A row has the same results, to the bit, alone and in any batch.
    """

    def __init__(self, weights: BlockWeights, kernels: BlockKernels) -> None:
        super().__init__()
        self.weights, self.kernels = weights, kernels
        self.in_features, self.out_features = weights.inputs, weights.outputs
        self.register_buffer("numbers", weights.numbers)
        self.register_buffer("bias", weights.bias)

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., in_features]; returns [..., out_features] in x's dtype."""
        rows = x.reshape(-1, self.in_features)
        rows = rows.float() if x.dtype == torch.float16 else rows
        return self.kernels.linear(rows, self.weights).to(x.dtype).view(*x.shape[:-1], self.out_features)

    @property
    def capabilities(self) -> LayerCapabilities:
        return LayerCapabilities(join=self.join, rows=self.rows, native_weights=self.weights)

    def rows(self, tokens: Tensor) -> Tensor:
        """tokens: int64 [tokens]; returns those rows of the weights, float32 [tokens, inputs]."""
        return self.kernels.rows(self.weights, tokens)

    def join(self, others: Sequence[nn.Module]) -> nn.Module | None:
        layers = [self, *(layer for layer in others if isinstance(layer, NativeBlockLinear))]
        weights = [layer.weights for layer in layers]
        if len(layers) <= len(others) or not self.kernels.joins(weights):
            return None
        return NativeBlockLinear(self.kernels.join(weights), self.kernels)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, kind={self.weights.kind}"


def packed_blocks(blocks: Tensor, kind: str, bias: Tensor | None, kernels: CpuKernels) -> NativeBlockLinear:
    """Packs a layer. blocks: uint8 [out, bytes], as they are stored."""
    wide = None if bias is None else bias.float()
    return NativeBlockLinear(kernels.blocks.pack(blocks, kind, wide), kernels.blocks)


class BlockEmbedding(nn.Module):
    """Keeps rows in blocks as a GGUF file stores them, and decodes those that are looked up."""

    rows: Tensor

    def __init__(self, rows: Tensor, kind: str, dtype: torch.dtype) -> None:
        """rows: uint8 [tokens, bytes]; kind: a name of `BLOCK_TYPES`; dtype: of what comes out."""
        super().__init__()
        self.register_buffer("rows", rows)
        self._kind, self._dtype = kind, dtype

    def forward(self, tokens: Tensor) -> Tensor:
        return dequantized(self.rows[tokens], self._kind).to(self._dtype)
