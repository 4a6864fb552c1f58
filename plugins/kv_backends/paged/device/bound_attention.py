"""The attention of one step, or of all steps of one shape: kernels, and the device memory that they read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from turnout.core.interfaces.attention import AttentionCapabilities
from turnout.core.types.layer_attention import LayerAttention
from turnout.plugins.kv_backends.paged.device.kernels.lanes import Lanes
from turnout.plugins.kv_backends.paged.device.kernels.ragged_attention import Tiles, ragged_attention
from turnout.plugins.kv_backends.paged.device.kernels.rotated_write import rotated_write

__all__ = ["BoundAttention"]


@dataclass(frozen=True)
class BoundAttention:
    """Implements RotatingAttend."""

    capabilities: ClassVar = AttentionCapabilities(rotates=True)

    lanes: Sequence[Lanes]
    """One for each layer."""
    rules: Sequence[LayerAttention]
    """One for each layer."""
    block_size: int
    table_of: Sequence[int]
    """By layer: the number of the KV group whose block tables it reads."""
    launches: Sequence[Sequence[Tiles]] = ()
    """Of each KV group."""
    written: Sequence[Tensor] = ()
    """Of each KV group, int32 [tokens]: the slots of the step's tokens; negative for padding."""

    def __call__(
        self, layer: int, q: Tensor, k: Tensor | None, v: Tensor | None, sinks: Tensor | None = None
    ) -> Tensor:
        return self._attend(layer, (q, k, v), None, sinks)

    def rotating(
        self,
        layer: int,
        q: Tensor,
        k: Tensor | None,
        v: Tensor | None,
        cos: Tensor,
        sin: Tensor,
        sinks: Tensor | None = None,
    ) -> Tensor:
        return self._attend(layer, (q, k, v), (cos, sin), sinks)

    def _attend(
        self,
        layer: int,
        parts: tuple[Tensor, Tensor | None, Tensor | None],
        rotation: tuple[Tensor, Tensor] | None,
        sinks: Tensor | None,
    ) -> Tensor:
        assert self.written, "attention was called before it was bound to a step"
        table = self.table_of[layer]
        q, k, v = parts
        assert k is not None and v is not None
        rotated_write(q, k, v, self.written[table], self.lanes[layer], rotation)
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        for tiles in self.launches[table]:
            ragged_attention(q, self.lanes[layer], tiles, self.block_size, out, self.rules[layer], sinks)
        return out
