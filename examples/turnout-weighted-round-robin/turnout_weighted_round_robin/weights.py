"""Validation of the weights that users give."""

from __future__ import annotations

from collections.abc import Mapping

from turnout.core.errors import ConfigError

__all__ = ["checked"]


def checked(weights: Mapping[str, float] | None) -> Mapping[str, float]:
    """Returns the weights, or none for None. Raises ConfigError for a weight that is not above 0."""
    for name, weight in (weights or {}).items():
        if weight <= 0:
            raise ConfigError(f"weights: {name!r} must have a weight above 0, not {weight}")
    return weights or {}
