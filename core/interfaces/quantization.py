"""The quantization interface: what takes a linear layer's place as its weights stream in.

Nothing here imports torch; tensors appear in annotations alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from turnout.core.errors import ModelError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from turnout.core.interfaces.compute import ComputeContext

__all__ = ["Adopter", "ExportedLayer", "Exporter", "Quantizer"]


class Quantizer(ABC):
    """Replaces linear layers as their weights stream in."""

    reads_only: ClassVar[bool] = False
    """It cannot quantize: it only reads checkpoints of its name, and cannot be chosen."""

    @abstractmethod
    def wants(self, name: str, linear: nn.Linear) -> bool:
        """Says whether the layer of this dotted name is to be converted."""

    @abstractmethod
    def convert(self, linear: nn.Linear, context: ComputeContext) -> nn.Module:
        """Returns the layer that takes the place of `linear`, which holds its weights.

        context: what the layer computes with; weights and activations are on its device.
        """

    def convert_named(self, name: str, linear: nn.Linear, context: ComputeContext) -> nn.Module:
        """Does the same as `convert`, for quantizers that convert layers by their names. This is called."""
        return self.convert(linear, context)

    def wants_embedding(self, name: str) -> bool:
        """Says whether the embedding of this dotted name is to be converted.

        An embedding that is tied to a converted head then reads the head's weights, where the head's layer
        can look up rows of them.
        """
        return False

    def convert_embedding(self, embedding: nn.Embedding, context: ComputeContext) -> nn.Module:
        """Returns what takes the embedding's place; called only where `wants_embedding` said yes."""
        return embedding

    def adopter(self, config: Mapping[str, Any]) -> Adopter:
        """Returns what reads a checkpoint whose ``quantization_config`` names this quantizer.

        config: that ``quantization_config``. Raises ModelError, naming the key, for settings that it does not
        read.
        """
        raise ModelError(
            f"config.json: quantization_config: quant_method = {config.get('quant_method')!r} is not a "
            "format that can be read"
        )

    def exporter(self) -> Exporter | None:
        """What writes this quantizer's layers to a checkpoint, for ``turnout quantize``.

        None, the default: they cannot be stored, and ``turnout quantize`` refuses the quantizer by name.
        """
        return None


class Adopter(ABC):
    """Builds the layers of a checkpoint that was quantized beforehand."""

    @abstractmethod
    def adopt(
        self, name: str, tensors: Mapping[str, Tensor], like: nn.Linear, context: ComputeContext
    ) -> nn.Module:
        """Returns the layer of that dotted name, built from all that the checkpoint has for it.

        tensors: on the target device, by the last part of their names, such as ``weight_scale``; a bias in
        the dtype of activations, the others as they are stored. like: the layer it stands for, without
        values. context: what the layer computes with. Called only for layers with tensors that an `nn.Linear`
        does not have. Raises ModelError, naming the tensor.
        """


@dataclass(frozen=True)
class ExportedLayer:
    """A quantized layer as a checkpoint stores it."""

    tensors: Mapping[str, Tensor]
    """By the last part of their names, such as ``weight_scale``.

    At least one is not called ``weight``: by it, loading knows the layer as quantized. None is called
    ``bias``, which is stored as it is.
    """
    scheme: Mapping[str, object]
    """How to read the tensors, in JSON's types; `Exporter.config` gets it back. Empty: nothing to say."""


class Exporter(ABC):
    """Stores a quantizer's layers in a checkpoint, which an `Adopter` then reads."""

    quant_method: ClassVar[str]
    """The registered name of the quantizer whose `adopter` reads the checkpoint.

    A plugin's own name, or that of a format such as ``compressed-tensors``.
    """

    @abstractmethod
    def export(self, name: str, weight: Tensor) -> ExportedLayer:
        """What is stored of the layer of that dotted name.

        weight: [out, in] in floating point, on the CPU. Called once for each layer that the quantizer wants.
        The adopter should build from the result what `Quantizer.convert_named` builds from the layer.
        """

    def config(
        self, layers: Mapping[str, Mapping[str, object]], unquantized: Sequence[str]
    ) -> Mapping[str, object]:
        """What ``quantization_config`` in config.json says, in JSON's types, besides ``quant_method``.

        layers: the scheme of each exported layer, by name. unquantized: the linear layers that stay as they
        are. Called once, when all layers are written.
        """
        return {}
