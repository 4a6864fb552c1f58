"""Attention with sinks: scores of heads that take part in the softmax and have no value (gpt-oss)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from turnout.core.types.model_spec import ModelSpec
from turnout.models.decoder.layers import Attention

__all__ = ["SinkAttention", "Sinks"]


class Sinks(nn.Module):
    """Passes a learned score of each head to attention."""

    sinks: nn.Parameter

    def passed(self) -> tuple[Tensor, ...]:
        return (self.sinks.float(),)


class SinkAttention(Sinks, Attention):
    """Attention with sinks."""

    def __init__(self, spec: ModelSpec, layer: int) -> None:
        Attention.__init__(self, spec, layer)
        self.sinks = nn.Parameter(torch.empty(spec.heads))
