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

    from turnout.kernels import Kernels

__all__ = ["Adopter", "ExportedLayer", "Exporter", "Quantizer"]


class Quantizer(ABC):
    """Replaces linear layers as their weights stream in."""

    reads_only: ClassVar[bool] = False
    """It cannot quantize: it reads checkpoints of its name, and nobody chooses it."""
    kernels: Kernels | None = None
    """Compiled kernels to compute with on a CPU, set before a layer is converted; None: there are none."""

    @abstractmethod
    def wants(self, name: str, linear: nn.Linear) -> bool:
        """Should the layer of this dotted name be converted?"""

    @abstractmethod
    def convert(self, linear: nn.Linear) -> nn.Module:
        """The layer that takes its place; `linear` holds its weights, on the target device."""

    def convert_named(self, name: str, linear: nn.Linear) -> nn.Module:
        """As `convert`, for those who care which layer it is: what is called."""
        return self.convert(linear)

    def wants_embedding(self, name: str) -> bool:
        """Should the embedding of this dotted name be converted?

        One that is tied to a converted head reads the head's weights then, where these are packed for
        compiled kernels.
        """
        return False

    def convert_embedding(self, embedding: nn.Embedding) -> nn.Module:
        """What takes its place: called only where `wants_embedding` said yes."""
        return embedding

    def adopter(self, config: Mapping[str, Any]) -> Adopter:
        """What reads a checkpoint whose ``quantization_config``, which is `config`, names this quantizer.

        Raises ModelError, naming the key, for what it does not read.
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

    kernels: Kernels | None = None
    """As a `Quantizer`'s, set before a layer is adopted."""

    @abstractmethod
    def adopt(self, name: str, tensors: Mapping[str, Tensor], like: nn.Linear) -> nn.Module:
        """The layer of that dotted name, from all that the checkpoint has for it.

        tensors: on the target device, by the last part of their names, such as ``weight_scale``; a bias in
        the dtype that is computed in, the others as they are stored. like: the layer it stands for, without
        values. Called only for layers with tensors that an `nn.Linear` does not have. Raises ModelError,
        naming the tensor.
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
