"""Integer weights in groups, as all formats are decoded to, and the layer that computes with them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from turnout.core.errors import ModelError
from turnout.core.interfaces.compute import ComputeContext
from turnout.plugins.quantization.layers.factory import LayerFactory, layer_factory
from turnout.plugins.quantization.layers.int4 import GROUPS, TILE

__all__ = ["GroupedCodes"]


class GroupedCodes(NamedTuple):
    """weight = (codes - zero) · scale, for each output and group of inputs."""

    codes: Tensor
    """uint8 [out, in]."""
    scale: Tensor
    """float32 [out, groups]."""
    zero: Tensor
    """float32, as `scale`."""
    order: Tensor | None = None
    """int64 [in]: which input each column of `codes` is for; None: in their own order."""

    def layer(self, name: str, bits: int, bias: Tensor | None, context: ComputeContext) -> nn.Module:
        """Build the layer of that name. Raises ModelError if no kernel supports its shape."""
        layers = layer_factory(context)
        return self._int4(name, bias, layers) if bits == 4 else self._int8(bias, layers)

    def _int8(self, bias: Tensor | None, layers: LayerFactory) -> nn.Module:
        if self.scale.shape[1] == 1 and self.order is None and bool((self.zero == 128).all()):
            signed = (self.codes.to(torch.int16) - 128).to(torch.int8)
            return layers.int8_weights(signed, self.scale[:, 0].contiguous(), bias)
        return layers.int8_groups(self.codes, self.scale, -self.zero * self.scale, bias, self.order)

    def _int4(self, name: str, bias: Tensor | None, layers: LayerFactory) -> nn.Module:
        outputs, width = self.codes.shape
        stored = width // self.scale.shape[1]
        group = next((group for group in GROUPS if stored % group == 0), None)
        if group is None or outputs % TILE:
            raise ModelError(
                f"{name} has 4-bit weights of {outputs} outputs in groups of {stored}; outputs in multiples "
                f"of {TILE} and groups in multiples of {GROUPS[-1]} are supported"
            )
        scale = self.scale.repeat_interleave(stored // group, dim=1)
        zero = self.zero.repeat_interleave(stored // group, dim=1)
        return layers.int4(self.codes, scale, (8 - zero) * scale, bias, self.order)
