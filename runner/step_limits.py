"""The limits of a step and of a request as configured, on a device or in a simulation. No torch."""

from __future__ import annotations

from turnout.config import EngineConfig
from turnout.core.errors import ConfigError
from turnout.core.scheduling.token_budget import Capacity
from turnout.core.types.model_spec import ModelSpec

__all__ = ["batched_tokens", "context_length", "step_capacity"]

_BATCHED_TOKENS = {"cpu": 512, "cuda": 8192}
_POOLED_TOKENS = {"cpu": 4, "cuda": 64}
"""Beside eight requests that generate, a step of so many more takes hardly longer: reading the weights takes
most of it."""


def batched_tokens(
    config: EngineConfig, device: str, spec: ModelSpec | None = None, longest: int | None = None
) -> int:
    """Returns how many tokens a step computes at most: it should take no longer than a reader notices.

    `device`: its type, ``cpu`` or ``cuda``. spec: of the model; an encoder computes any prompt in one step.
    longest: as of `context_length`.
    """
    tokens = config.max_num_batched_tokens or _BATCHED_TOKENS[device]
    return max(tokens, context_length(config, spec, longest)) if spec is not None and spec.encoder else tokens


def context_length(config: EngineConfig, spec: ModelSpec, longest: int | None = None) -> int:
    """Returns the most tokens of prompt and output.

    longest: the most tokens of a text, as the folder of a model that generates nothing says. Raises
    ConfigError if `max_model_len` exceeds that or the model's positions, as vLLM does.
    """
    most = spec.max_positions if longest is None else min(longest, spec.max_positions)
    length = config.max_model_len or most
    if length > spec.max_positions:
        raise ConfigError(
            f"max_model_len={length:,} exceeds the model's {spec.max_positions:,} positions; lower it"
        )
    if length > most:
        raise ConfigError(
            f"max_model_len={length:,} exceeds the {most:,} tokens that the model's folder allows a text "
            "(max_seq_length, or else its tokenizer's model_max_length); lower it, or raise that number there"
        )
    return length


def step_capacity(config: EngineConfig, device: str, tokens: int) -> Capacity:
    """Returns what a step may use. `tokens`: what `batched_tokens` returned."""
    pooled = config.max_num_pooled_tokens or _POOLED_TOKENS[device]
    return Capacity(tokens=tokens, sequences=config.max_num_seqs, pooled=pooled)
