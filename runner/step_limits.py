"""The limits of a step and of a request as configured, on a device or in a simulation. No torch."""

from __future__ import annotations

from turnout.config import EngineConfig
from turnout.core.errors import ConfigError
from turnout.core.types.model_spec import ModelSpec

__all__ = ["batched_tokens", "context_length"]

_BATCHED_TOKENS = {"cpu": 512, "cuda": 8192}


def batched_tokens(config: EngineConfig, device: str, spec: ModelSpec | None = None) -> int:
    """Returns how many tokens a step computes at most: it should take no longer than a reader notices.

    `device`: its type, ``cpu`` or ``cuda``. spec: of the model; an encoder computes any prompt in one step.
    """
    tokens = config.max_num_batched_tokens or _BATCHED_TOKENS[device]
    return max(tokens, context_length(config, spec)) if spec is not None and spec.encoder else tokens


def context_length(config: EngineConfig, spec: ModelSpec) -> int:
    """Returns the most tokens of prompt and output. Raises ConfigError if the model has fewer positions."""
    length = config.max_model_len or spec.max_positions
    if length > spec.max_positions:
        raise ConfigError(
            f"max_model_len={length:,} exceeds the model's {spec.max_positions:,} positions; lower it"
        )
    return length
