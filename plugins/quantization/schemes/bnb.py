"""The schemes of bitsandbytes, which is an extra: ``pip install turnout[bnb]``."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from turnout.core.errors import ConfigError
from turnout.core.interfaces.quantization import Quantizer
from turnout.plugins.quantization.schemes.scheme import QuantizeHead, check_device, is_head

if TYPE_CHECKING:
    from torch import nn

    from turnout.core.interfaces.compute import ComputeContext

__all__ = ["BnbFp4", "BnbInt8", "BnbNf4"]


class BitsAndBytes(Quantizer):
    """Base of the schemes of bitsandbytes. Raises ConfigError if it is not installed."""

    name: ClassVar[str]

    def __init__(self, lm_head: QuantizeHead = False) -> None:
        if find_spec("bitsandbytes") is None:
            raise ConfigError(
                f"quantization {self.name!r} needs bitsandbytes, which is not installed; pip install "
                "'turnout[bnb]', or choose int8 or int4wo, which need nothing"
            )
        self.lm_head = lm_head

    def wants(self, name: str, linear: nn.Linear) -> bool:
        return self.lm_head or not is_head(name)


class BnbInt8(BitsAndBytes):
    """LLM.int8() (https://arxiv.org/abs/2208.07339): weights and activations in 8 bits, outliers as they are.

    Saves memory, not time: products are of floats. Outliers are looked for in each token by itself.
    """

    name: ClassVar[str] = "bnb-int8"

    def __init__(
        self,
        threshold: Annotated[
            float,
            Field(
                description="Activations of at least this magnitude are not rounded; 0: every one is rounded."
            ),
        ] = 6.0,
        lm_head: QuantizeHead = False,
    ) -> None:
        super().__init__(lm_head)
        if threshold < 0:
            raise ConfigError(f"threshold={threshold} should be 0 or more")
        self.threshold = threshold

    def convert(self, linear: nn.Linear, context: ComputeContext) -> nn.Module:
        from turnout.plugins.quantization.layers.bnb import OutlierLinear

        check_device(self.name, linear.weight.device)
        return OutlierLinear(linear.weight, linear.bias, self.threshold)


class BnbNf4(BitsAndBytes):
    """4-bit NormalFloat of QLoRA (https://arxiv.org/abs/2305.14314): 16 levels as normal weights lie.

    Saves memory, not time: weights are decoded as they are used.
    """

    name: ClassVar[str] = "bnb-nf4"
    levels: ClassVar[str] = "nf4"
    divides: ClassVar[bool] = True

    def __init__(
        self,
        block_size: Annotated[
            Literal[64, 128, 256],
            Field(description="Inputs that share a scale; other widths stay as they are."),
        ] = 64,
        lm_head: QuantizeHead = False,
    ) -> None:
        super().__init__(lm_head)
        self.block_size = block_size

    def wants(self, name: str, linear: nn.Linear) -> bool:
        """Rows are decoded one by one, so a block must not span two rows."""
        return linear.in_features % self.block_size == 0 and super().wants(name, linear)

    def convert(self, linear: nn.Linear, context: ComputeContext) -> nn.Module:
        from turnout.plugins.quantization.layers.bnb import FourBitLinear

        check_device(self.name, linear.weight.device)
        if linear.in_features % self.block_size:
            raise ConfigError(
                f"quantization {self.name!r}: a rank has {linear.in_features:,} inputs of a layer, which cut "
                f"through blocks of {self.block_size}; take another number of ranks, or int8"
            )
        return FourBitLinear(linear.weight, linear.bias, self.levels, self.block_size)


class BnbFp4(BnbNf4):
    """4-bit floating point: 16 levels, denser at 0. `bnb-nf4` is nearly always better."""

    name: ClassVar[str] = "bnb-fp4"
    levels: ClassVar[str] = "fp4"
