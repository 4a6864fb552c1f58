"""No quantization."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnout.core.interfaces.quantization import Quantizer

if TYPE_CHECKING:
    from torch import nn

    from turnout.core.interfaces.compute import ComputeContext

__all__ = ["NoQuantization"]


class NoQuantization(Quantizer):
    """Leaves every layer as it is."""

    def wants(self, name: str, linear: nn.Linear) -> bool:
        return False

    def convert(self, linear: nn.Linear, context: ComputeContext) -> nn.Module:
        return linear
