"""Rotary embeddings of transformers whose frequencies depend on the longest sequence of a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn
from transformers import PreTrainedConfig

__all__ = ["fix_rotations", "fixed_positions"]

GROWING = ("dynamic", "longrope")
"""Kinds of rope scaling that change all frequencies once a sequence is longer than in training."""


def fixed_positions(config: PreTrainedConfig) -> int | None:
    """Returns within how many positions no rotation depends on the rest of the batch; None: within all.

    Keys are kept as they were rotated, so a model is served within these positions.
    """
    found = []
    for rope in _ropes(getattr(config, "rope_parameters", None)):
        if rope.get("rope_type") in GROWING:
            key = "original_max_position_embeddings"
            found.append(rope.get(key) or getattr(config, key, None) or config.max_position_embeddings)
    return min(found, default=None)


def fix_rotations(model: nn.Module) -> None:
    """Lets growing kinds keep their first frequencies, and not look at the positions of each step."""
    for module in model.modules():
        kind = getattr(module, "rope_type", None)
        if isinstance(kind, dict):
            for layer_type, each in kind.items():
                kind[layer_type] = "default" if each in GROWING else each
        elif kind in GROWING:
            module.rope_type = "default"  # type: ignore[assignment]  # a string of transformers' modules


def _ropes(parameters: object) -> Iterator[Mapping[str, Any]]:
    """Yields the parameters of rotations: one, or one for each type of layer."""
    if isinstance(parameters, Mapping):
        if "rope_type" in parameters:
            yield parameters
        for each in parameters.values():
            if isinstance(each, Mapping) and "rope_type" in each:
                yield each
