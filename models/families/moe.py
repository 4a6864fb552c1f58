"""What the specs of mixtures of experts say beyond those of other decoders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from turnout.core.errors import ModelError
from turnout.core.types.model_spec import ModelSpec
from turnout.models.config_reader import ConfigReader

if TYPE_CHECKING:
    from turnout.models.decoder.experts import Experts
    from turnout.models.decoder.gates import Gate

__all__ = ["MoeSpec", "sparse_layers"]


@dataclass(frozen=True, kw_only=True)
class MoeSpec(ModelSpec):
    """A decoder with experts in some of its layers."""

    experts: int
    """How many a layer has."""
    top: int
    """How many of them a token goes to."""
    expert_size: int
    """The width inside an expert."""
    normalized: bool
    """Whether the weights of a token's experts add up to 1."""
    sparse: Sequence[bool]
    """For each layer: whether it has experts, or an MLP as other decoders have."""
    shared_size: int = 0
    """The width inside the MLP that all tokens go through; 0: there is none."""

    def __post_init__(self) -> None:
        if self.top > self.experts:
            raise ModelError(
                f"config.json: num_experts_per_tok = {self.top} should be at most the {self.experts} experts"
            )

    @property
    def more_parameters(self) -> int:
        """How many parameters its layers of experts have beyond those that a decoder without them has."""
        expert = 3 * self.expert_size * self.hidden_size
        plain = 3 * self.intermediate_size * self.hidden_size
        shared = 3 * self.shared_size * self.hidden_size
        return sum(self.sparse) * (self.experts * (expert + self.hidden_size) + shared - plain)

    def make_experts(self, gated: Gate | None = None) -> Experts:
        """Builds the experts of a layer. gated: what lies between their products; None: SwiGLU."""
        from turnout.models.decoder.experts import Experts
        from turnout.models.decoder.gates import silu_gate
        from turnout.models.decoder.layers import GatedMLP

        return Experts(GatedMLP(self, self.expert_size, gated or silu_gate) for _ in range(self.experts))


def sparse_layers(reader: ConfigReader, layers: int) -> tuple[bool, ...]:
    """Returns for each layer whether it has experts, as Qwen's configs say it."""
    step = reader.integer("decoder_sparse_step", 1)
    dense = reader.integers("mlp_only_layers")
    return tuple(layer not in dense and (layer + 1) % step == 0 for layer in range(layers))
