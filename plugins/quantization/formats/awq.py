"""Reads AWQ's layout called gemm, as AutoAWQ writes it.

::

    qweight  int32 [in, out / 8]       codes, packed along outputs: 0 2 4 6 1 3 5 7
    qzeros   int32 [groups, out / 8]   zero points, the same way
    scales   float [groups, out]

weight = (code - zero) · scale.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from turnout.core.interfaces.compute import ComputeContext
from turnout.core.interfaces.quantization import Adopter
from turnout.plugins.quantization.formats.grouped_codes import GroupedCodes
from turnout.plugins.quantization.formats.layer_tensors import LayerTensors
from turnout.plugins.quantization.formats.packing import unpack
from turnout.plugins.quantization.formats.settings import Settings

__all__ = ["AwqAdopter"]

PLACES = [0, 4, 1, 5, 2, 6, 3, 7]
"""The place in a word of each of eight outputs' codes."""


class AwqAdopter(Adopter):
    divides = True

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._settings = settings = Settings(config)
        settings.one_of("bits" if "bits" in config else "w_bit", (4,))
        settings.one_of("version", ("gemm", "GEMM"), default="gemm")
        self.group_size = settings.integer("group_size" if "group_size" in config else "q_group_size")

    def adopt(
        self, name: str, tensors: Mapping[str, Tensor], like: nn.Linear, context: ComputeContext
    ) -> nn.Module:
        parts = LayerTensors(name, tensors, like)
        if self._settings.config.get("zero_point") is False and not parts.has("qzeros"):
            raise self._settings.wrong("zero_point", f"{name} has no qzeros, which is not supported")
        groups = parts.groups(self.group_size)
        codes = _unpack(parts.take("qweight", [torch.int32], [parts.inputs, parts.outputs // 8]))
        zero = _unpack(parts.take("qzeros", [torch.int32], [groups, parts.outputs // 8])).float()
        scale = parts.scale("scales", [groups, parts.outputs]).t().contiguous()
        bias = parts.bias()
        parts.finish()
        return GroupedCodes(codes, scale, zero).layer(name, 4, bias, context)


def _unpack(words: Tensor) -> Tensor:
    """int32 [rows, out / 8] to uint8 [out, rows]."""
    codes = unpack(words, 4).view(len(words), -1, 8)
    return codes[..., PLACES].flatten(1).t()
