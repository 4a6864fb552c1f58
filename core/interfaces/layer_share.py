"""What a rank of an engine on several devices has of a linear layer, for those that build quantized layers.

Nothing here imports torch; tensors appear in annotations alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from turnout.core.interfaces.collective import Collective

__all__ = ["LayerShare"]


@dataclass(frozen=True)
class LayerShare:
    """A rank's part of a layer's outputs, or of its inputs.

    ::

        weight [out, in]     outputs: rows; behind the last one of the whole layer come rows of zeros
                             inputs: columns, of which each rank has others: ranks add up what they put out
    """

    layer: str
    """Its name, for messages."""
    outputs: range
    inputs: range
    whole: tuple[int, int]
    """Outputs and inputs of the whole layer."""
    collective: Collective

    @property
    def splits_inputs(self) -> bool:
        return len(self.inputs) < self.whole[1]

    @property
    def has_bias(self) -> bool:
        """Whether this rank adds the bias: one of those whose sums are added up does."""
        return not self.splits_inputs or self.collective.rank == 0

    def largest(self, maxima: Tensor) -> Tensor:
        """Returns the largest of all ranks' `maxima`, element by element, where ranks have other inputs."""
        return self.collective.all_reduce_max(maxima) if self.splits_inputs else maxima

    def gathered(self, weight: Tensor) -> Tensor:
        """Returns the whole weight, [out, in], of each rank's columns."""
        return self.collective.all_gather(weight.t().contiguous()).t()
