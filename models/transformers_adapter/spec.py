"""The spec of a model that transformers describes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from turnout.core.types.model_spec import ModelSpec

__all__ = ["AdaptedSpec"]


@dataclass(frozen=True)
class AdaptedSpec(ModelSpec):
    """The shape of a model of transformers, and the ``config.json`` that it is built from.

    Fields that only our own layers need (norms, rotations, biases) say nothing.
    """

    config: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
