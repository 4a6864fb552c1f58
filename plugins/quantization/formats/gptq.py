"""Reads GPTQ's layout, as AutoGPTQ and GPTQModel write it.

::

    qweight  int32 [in · bits / 32, out]       codes, packed along inputs
    qzeros   int32 [groups, out · bits / 32]   zero points, packed along outputs, one less than they are:
                                               words less 0x11111111 or 0x01010101, so 0 borrows from the next
    scales   float [groups, out]
    g_idx    int32 [in]                        the group of each input

weight = (code - zero) · scale. With ``desc_act``, a group has inputs of similar importance, from anywhere in
the layer. In ``gptq_v2`` zero points are stored as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from turnout.core.errors import ModelError
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.interfaces.quantization import Adopter
from turnout.plugins.quantization.formats.grouped_codes import GroupedCodes
from turnout.plugins.quantization.formats.layer_tensors import LayerTensors
from turnout.plugins.quantization.formats.packing import unpack
from turnout.plugins.quantization.formats.settings import Settings

__all__ = ["GptqAdopter"]

ONES = {4: 0x11111111, 8: 0x01010101}
"""By bits, a word with 1 in each place."""


class GptqAdopter(Adopter):
    divides = True

    def __init__(self, config: Mapping[str, Any]) -> None:
        settings = Settings(config)
        self.bits = settings.one_of("bits", (4, 8))
        self.group_size = settings.integer("group_size")
        version = settings.one_of("checkpoint_format", ("gptq", "gptq_v2"), default="gptq")
        self._stored_less = ONES[self.bits] if version == "gptq" else 0
        settings.refuse("dynamic", "layers that are quantized differently from others")

    def adopt(
        self, name: str, tensors: Mapping[str, Tensor], like: nn.Linear, context: ComputeContext
    ) -> nn.Module:
        parts = LayerTensors(name, tensors, like)
        groups, words = parts.groups(self.group_size), 32 // self.bits
        codes = unpack(
            parts.take("qweight", [torch.int32], [parts.inputs // words, parts.outputs]).t(), self.bits
        )
        zeros = parts.take("qzeros", [torch.int32], [groups, parts.outputs // words]) + self._stored_less
        zero = unpack(zeros, self.bits).t().float()
        scale = parts.scale("scales", [groups, parts.outputs]).t().contiguous()
        order = _order(parts, parts.inputs // groups) if parts.has("g_idx") else None
        bias = parts.bias()
        parts.finish()
        if order is not None:
            codes = codes[:, order]
        return GroupedCodes(codes, scale, zero, order).layer(name, self.bits, bias, context)


def _order(parts: LayerTensors, group: int) -> Tensor | None:
    """The order of inputs that sorts them by group; None if they are sorted."""
    index = parts.take("g_idx", [torch.int32, torch.int64], [parts.inputs]).long()
    order = index.argsort(stable=True)
    if not torch.equal(index[order], torch.arange(parts.inputs, device=index.device) // group):
        raise ModelError(f"{parts.layer}.g_idx does not put {group} inputs into each group")
    in_place = torch.equal(order, torch.arange(parts.inputs, device=index.device))
    return None if in_place else order
