"""Expert parallelism: each rank has some experts of a layer whole, instead of a part of every expert.

Hidden states are whole on every rank, so no tokens need to be sent around: a rank computes the pairs of a
token and one of its experts, and ranks add up what comes of a token, once, as where experts are divided.
"""

from __future__ import annotations

from torch import nn

from turnout.models.decoder.experts import Experts

__all__ = ["experts_of", "keep_experts"]


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
