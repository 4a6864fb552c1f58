"""Reads layers in blocks of a GGUF file.

::

    q8_0  uint8 [out, in / 32 · 34]    a block: scale float16, 32 codes int8
    q4_0  uint8 [out, in / 32 · 18]    a block: scale float16, 16 bytes: codes 0 to 15 low, 16 to 31 high
    q4_k  uint8 [out, in / 256 · 144]  a block of eight groups: scale and offset float16; of each
                                       group a scale and an offset of six bits; codes of four
    q6_k  uint8 [out, in / 256 · 210]  a block of 16 groups: codes of six bits; of each group a
                                       scale int8; scale float16

weight = code · scale, where codes 8 of q4_0 and 32 of q6_k stand for 0; q4_k's offsets are taken away. Scales
of groups are multiplied by their block's. Activations are not quantized.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor, nn

from turnout.core.errors import ModelError
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.interfaces.quantization import Adopter
from turnout.kernels import cpu_kernels
from turnout.kernels.blocks import BLOCK_TYPES
from turnout.plugins.quantization.formats.layer_tensors import LayerTensors
from turnout.plugins.quantization.layers.blocks import BlockEmbedding
from turnout.plugins.quantization.layers.factory import layer_factory
from turnout.plugins.quantization.layers.share_factory import Cut

__all__ = ["GgufAdopter", "Mxfp4Adopter"]

ON_GPU = ("q8_0", "q4_0")
"""Types that GPU kernels hold."""
EXPONENTS = {"q8_0": [1], "q4_0": [1], "q4_k": [1, 3], "q6_k": [209]}
"""Bytes of a block that have the exponents of its numbers in float16."""
ALL_ONES = 0b1111100
"""The exponent of what is not finite, as such a byte has it."""


class GgufAdopter(Adopter):
    """Builds layers that hold the file's codes and scales."""

    embeddings = divides = True

    def held_blocks(self, context: ComputeContext) -> Collection[str]:
        return BLOCK_TYPES if context.device.type == "cpu" else ON_GPU

    def adopt(
        self, name: str, tensors: Mapping[str, Tensor], like: nn.Linear, context: ComputeContext
    ) -> nn.Module:
        kind = _kind(name, tensors)
        parts = LayerTensors(name, tensors, like)
        of = BLOCK_TYPES[kind]
        row = parts.groups(of.inputs) * of.stored
        blocks = parts.take(kind, [torch.uint8], [parts.outputs, row])
        bias = parts.bias()
        parts.finish()
        _check_scales(f"{name}.{kind}", kind, blocks)
        return layer_factory(context).blocks(blocks, kind, bias)

    def adopt_embedding(
        self, name: str, tensors: Mapping[str, Tensor], like: nn.Embedding, context: ComputeContext
    ) -> nn.Module:
        kind = _kind(name, tensors)
        of, rows = BLOCK_TYPES[kind], tensors[kind]
        row = like.embedding_dim // of.inputs * of.stored
        if list(rows.shape) != [like.num_embeddings, row]:
            raise ModelError(
                f"{name}.{kind} has shape {list(rows.shape)}, expected {[like.num_embeddings, row]}"
            )
        _check_scales(f"{name}.{kind}", kind, rows)
        if context.share is not None:
            rows = Cut(context.share).rows(rows)
        return BlockEmbedding(rows, kind, context.dtype)


class Mxfp4Adopter(GgufAdopter):
    """Builds layers of MXFP4's numbers in blocks of 8 bits, which hold them exactly, for a CPU's kernels.

    Elsewhere they are read as floating-point numbers, which dtypes of 16 bits hold exactly, too.
    """

    embeddings = False

    def held_blocks(self, context: ComputeContext) -> Collection[str]:
        return () if cpu_kernels(context.kernels) is None else ("q8_0",)


def _check_scales(name: str, kind: str, rows: Tensor) -> None:
    """Raises ModelError for blocks with a scale or an offset that is not finite."""
    blocks = rows.view(len(rows), -1, BLOCK_TYPES[kind].stored)
    if any(bool((blocks[..., at] & ALL_ONES == ALL_ONES).any()) for at in EXPONENTS[kind]):
        raise ModelError(f"{name} holds scales that are not finite; fetch the file again")


def _kind(name: str, tensors: Mapping[str, Tensor]) -> str:
    found = [kind for kind in BLOCK_TYPES if kind in tensors]
    if len(found) != 1:
        raise ModelError(f"{name} has {', '.join(tensors)}; expected one of {', '.join(BLOCK_TYPES)}")
    return found[0]
