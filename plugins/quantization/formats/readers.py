"""Quantizers that only read a format, by its ``quant_method``. They import torch when they read one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from turnout.core.errors import ConfigError
from turnout.core.interfaces.quantization import Adopter, Quantizer

if TYPE_CHECKING:
    from torch import nn

    from turnout.core.interfaces.compute import ComputeContext

__all__ = ["Awq", "CompressedTensors", "Gguf", "Gptq", "Mxfp4"]


class FormatReader(Quantizer):
    """Reads checkpoints that were quantized beforehand, and cannot quantize."""

    name: ClassVar[str]
    reads_only = True

    def wants(self, name: str, linear: nn.Linear) -> NoReturn:
        raise ConfigError(
            f"quantization {self.name!r} is how some checkpoints are stored, which is found out by itself; "
            "to quantize this one while it is loaded, choose int8, int8wo, int4wo or fp8"
        )

    def convert(self, linear: nn.Linear, context: ComputeContext) -> NoReturn:
        self.wants("", linear)


class CompressedTensors(FormatReader):
    """Reads what llm-compressor and `turnout quantize` write: int8, int4 and fp8 weights."""

    name: ClassVar[str] = "compressed-tensors"

    def adopter(self, config: Mapping[str, Any]) -> Adopter:
        from turnout.plugins.quantization.formats.compressed_tensors import CompressedTensorsAdopter

        return CompressedTensorsAdopter(config)


class Gptq(FormatReader):
    """Reads GPTQ's weights of 4 and 8 bits, with or without ``desc_act``."""

    name: ClassVar[str] = "gptq"

    def adopter(self, config: Mapping[str, Any]) -> Adopter:
        from turnout.plugins.quantization.formats.gptq import GptqAdopter

        return GptqAdopter(config)


class Awq(FormatReader):
    """Reads AWQ's weights of 4 bits, in the layout called gemm."""

    name: ClassVar[str] = "awq"

    def adopter(self, config: Mapping[str, Any]) -> Adopter:
        from turnout.plugins.quantization.formats.awq import AwqAdopter

        return AwqAdopter(config)


class Gguf(FormatReader):
    """Reads llama.cpp's blocks: Q8_0, Q4_0, Q4_K and Q6_K as they are, other types as numbers."""

    name: ClassVar[str] = "gguf"

    def adopter(self, config: Mapping[str, Any]) -> Adopter:
        from turnout.plugins.quantization.formats.gguf import GgufAdopter

        return GgufAdopter()


class Mxfp4(FormatReader):
    """Reads weights of 4 bits with a power of two for each 32 inputs, as gpt-oss has them for its experts.

    A CPU's kernels hold them in 8 bits, otherwise they are widened to ``--dtype``, both exactly; or they are
    quantized anew, as ``--quantization`` says.
    """

    name: ClassVar[str] = "mxfp4"
    decodes = True

    def adopter(self, config: Mapping[str, Any]) -> Adopter:
        from turnout.plugins.quantization.formats.gguf import Mxfp4Adopter

        return Mxfp4Adopter()
