"""What the schemes that quantize a model's own weights have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from turnout.core.errors import ConfigError
from turnout.core.interfaces import Quantizer

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["DYNAMIC", "LinearScheme", "StoredLayer"]

DYNAMIC = {"num_bits": 8, "symmetric": True, "strategy": "token", "dynamic": True}
"""Activations with a scale for each token, found as they come; what is missing is their ``type``."""


@dataclass(frozen=True)
class StoredLayer:
    """A layer's weights in a checkpoint, and the scheme that ``quantization_config`` states for them."""

    tensors: Mapping[str, Tensor]
    """By the last part of their names."""
    format: str
    weights: Mapping[str, object]
    activations: Mapping[str, object] | None = None


class LinearScheme(Quantizer):
    """Converts every linear layer whose shape it can take, but the head only where that is asked for."""

    name: ClassVar[str]

    def __init__(self, lm_head: bool = False) -> None:
        self.lm_head = lm_head

    def wants(self, name: str, linear: nn.Linear) -> bool:
        return self.lm_head or name.rpartition(".")[2] != "lm_head"

    def convert(self, linear: nn.Linear) -> nn.Module:
        device = linear.weight.device
        if device.type not in ("cpu", "cuda"):
            raise ConfigError(
                f"quantization {self.name!r} has no kernels for {device}; use --device cpu or cuda, or leave "
                "--quantization out"
            )
        return self.layer(linear.weight, linear.bias)

    @abstractmethod
    def stored(self, weight: Tensor) -> StoredLayer:
        """How compressed-tensors stores the layer; its adopter builds from that what `layer` does.

        weight: [out, in] in floating point, on the CPU.
        """

    @abstractmethod
    def layer(self, weight: Tensor, bias: Tensor | None) -> nn.Module:
        """What takes its place. weight: [out, in] in floating point; bias: [out]."""
