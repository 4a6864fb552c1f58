"""The base class of schemes that quantize a model's weights while they are loaded."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from turnout.core.errors import ConfigError
from turnout.core.interfaces.quantization import ExportedLayer, Exporter, Quantizer

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from turnout.core.interfaces.compute import ComputeContext

__all__ = ["LinearScheme", "check_device", "is_head", "undivided"]


def is_head(name: str) -> bool:
    return name.rpartition(".")[2] == "lm_head"


def check_device(name: str, device: torch.device) -> None:
    """Raises ConfigError if the scheme of that name has no kernels for the device."""
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(
            f"quantization {name!r} has no kernels for {device}; use --device cpu or cuda, or leave "
            "--quantization out"
        )


def undivided(context: ComputeContext) -> ComputeContext:
    """Returns what builds a layer of codes that are this rank's already."""
    return replace(context, share=None)


QuantizeHead = Annotated[
    bool,
    Field(
        description="Quantize the head, too. A head tied to the embedding then has its own weights beside "
        "it: more memory, less time."
    ),
]
QuantizeEmbedding = Annotated[
    bool,
    Field(
        description="Quantize the embedding, too, in 8 bits. If tied, it then reads the head's weights: "
        "with `lm_head`, less memory and less time."
    ),
]


class LinearScheme(Quantizer):
    """Converts all linear layers of supported shapes; the head and the embedding only by option."""

    name: ClassVar[str]
    divides: ClassVar[bool] = True

    def __init__(self, lm_head: QuantizeHead = False, embeddings: QuantizeEmbedding = False) -> None:
        self.lm_head, self.embeddings = lm_head, embeddings

    def wants(self, name: str, linear: nn.Linear) -> bool:
        return self.lm_head or not is_head(name)

    def for_layer(self, name: str) -> LinearScheme:
        """The scheme that converts the layer of that name."""
        return self

    def convert_named(self, name: str, linear: nn.Linear, context: ComputeContext) -> nn.Module:
        return self.for_layer(name).convert(linear, context)

    def wants_embedding(self, name: str) -> bool:
        return self.embeddings

    def convert_embedding(self, embedding: nn.Embedding, context: ComputeContext) -> nn.Module:
        from turnout.plugins.quantization.layers.embedding import Int8Embedding
        from turnout.plugins.quantization.schemes.encoding import to_int8

        return Int8Embedding(*to_int8(embedding.weight), embedding.weight.dtype)

    def convert(self, linear: nn.Linear, context: ComputeContext) -> nn.Module:
        check_device(self.name, linear.weight.device)
        return self.layer(linear.weight, linear.bias, context)

    def exporter(self) -> Exporter:
        from turnout.plugins.quantization.formats.compressed_tensors_writer import CompressedTensorsExporter

        return CompressedTensorsExporter(lambda name, weight: self.for_layer(name).export(weight))

    @abstractmethod
    def export(self, weight: Tensor) -> ExportedLayer:
        """The layer as compressed-tensors stores it; its adopter builds from that what `layer` builds.

        weight: [out, in] in floating point, on the CPU.
        """

    @abstractmethod
    def layer(self, weight: Tensor, bias: Tensor | None, context: ComputeContext) -> nn.Module:
        """Build the quantized layer. weight: [out, in] in floating point; bias: [out]; of a rank's share."""
