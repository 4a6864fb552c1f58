"""The formats by the names that checkpoints give them, as ``quant_method``. No torch before one is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from turnout.core.errors import ConfigError
from turnout.core.interfaces.quantization import Adopter, Quantizer

if TYPE_CHECKING:
    from torch import nn

    from turnout.core.interfaces.compute import ComputeContext

__all__ = ["Awq", "CompressedTensors", "Gptq"]


class Format(Quantizer):
    """Reads, and cannot quantize."""

    name: ClassVar[str]
    reads_only = True

    def wants(self, name: str, linear: nn.Linear) -> NoReturn:
        raise ConfigError(
            f"quantization {self.name!r} is how some checkpoints are stored, and is found out by itself; to "
            "quantize this one while it is loaded choose int8, int8wo, int4wo or fp8"
        )

    def convert(self, linear: nn.Linear, context: ComputeContext) -> NoReturn:
        self.wants("", linear)


class CompressedTensors(Format):
    """Reads what llm-compressor and `turnout quantize` write: int8, int4 and fp8 weights."""

    name: ClassVar[str] = "compressed-tensors"

    def adopter(self, config: Mapping[str, Any]) -> Adopter:
        from turnout.plugins.quantization.formats.compressed_tensors import CompressedTensorsAdopter

        return CompressedTensorsAdopter(config)


class Gptq(Format):
    """Reads GPTQ's 4 and 8 bits, in the order of activations or not."""

    name: ClassVar[str] = "gptq"

    def adopter(self, config: Mapping[str, Any]) -> Adopter:
        from turnout.plugins.quantization.formats.gptq import GptqAdopter

        return GptqAdopter(config)


class Awq(Format):
    """Reads AWQ's 4 bits, in the layout called gemm."""

    name: ClassVar[str] = "awq"

    def adopter(self, config: Mapping[str, Any]) -> Adopter:
        from turnout.plugins.quantization.formats.awq import AwqAdopter

        return AwqAdopter(config)
