"""Expert parallelism: each rank has some experts of a layer whole, instead of a part of every expert.

Hidden states are whole on every rank, so no tokens need to be sent around: a rank computes the pairs of a
token and one of its experts, and ranks add up what comes of a token, once, as where experts are divided.
"""

from __future__ import annotations

from torch import nn

from turnout.core.errors import ConfigError
from turnout.core.types.model_spec import ModelSpec
from turnout.models.decoder.experts import Experts
from turnout.models.families.moe import MoeSpec

__all__ = ["check_experts", "experts_of", "keep_experts"]


def check_experts(spec: ModelSpec, ranks: int) -> None:
    """Raises ConfigError for a model whose experts cannot be given out to so many ranks."""
    if not isinstance(spec, MoeSpec):
        raise ConfigError(
            f"enable_expert_parallel: {spec.architecture} is no family of Turnout's that has experts; leave "
            "it out"
        )
    if ranks == 1:
        raise ConfigError(
            "enable_expert_parallel gives out experts to the ranks of --tensor-parallel-size, and there is "
            "one; take two or more, or leave it out"
        )
    if spec.experts < ranks:
        raise ConfigError(
            f"enable_expert_parallel: {spec.architecture} has {spec.experts} experts for {ranks} ranks; take "
            f"--tensor-parallel-size {spec.experts} or less"
        )


def experts_of(count: int, rank: int, size: int) -> range:
    """Returns which of `count` experts a rank has: neighbours, as many as others have, or one more."""
    return range(count * rank // size, count * (rank + 1) // size)


def keep_experts(module: nn.Module, rank: int, size: int) -> None:
    """Leaves a rank's experts in each layer, under the names that they have in the whole one."""
    for name, layer in list(module.named_modules()):
        if isinstance(layer, Experts):
            own = experts_of(len(layer), rank, size)
            kept = list(layer)[own.start : own.stop]
            module.set_submodule(name, Experts(kept, own.start, len(layer) - own.stop))
