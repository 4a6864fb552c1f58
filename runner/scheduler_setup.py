"""Limits of steps and preemption as configured, on a device or in a simulation. No torch."""

from __future__ import annotations

from collections.abc import Callable

from turnout.config import EngineConfig
from turnout.core.errors import ConfigError
from turnout.core.scheduling.preemption import Auto, Preemption, Recompute, Swap, SwapCosts
from turnout.core.types.model_spec import ModelSpec

__all__ = ["batched_tokens", "choose_preemption", "context_length"]

_BATCHED_TOKENS = {"cpu": 512, "cuda": 8192}


def batched_tokens(config: EngineConfig, device: str) -> int:
    """Tokens a step computes at most: it should take no longer than a reader notices.

    `device`: its type, ``cpu`` or ``cuda``.
    """
    return config.max_num_batched_tokens or _BATCHED_TOKENS[device]


def context_length(config: EngineConfig, spec: ModelSpec) -> int:
    """Longest prompt and output together; raises ConfigError where the model cannot do what is asked for."""
    length = config.max_model_len or spec.max_positions
    if length > spec.max_positions:
        raise ConfigError(
            f"max_model_len={length:,} exceeds the model's {spec.max_positions:,} positions; lower it"
        )
    return length


def choose_preemption(config: EngineConfig, swap: int, costs: Callable[[], SwapCosts]) -> Preemption:
    """What happens to a preempted request. `swap`: positions that the backend made of the swap memory.

    `costs` is called only where they decide. Raises ConfigError for swap memory that the backend cannot use.
    """
    if not swap and (config.swap_memory or config.preemption == "swap"):
        raise ConfigError(
            f"kv backend {config.kv!r} swaps nothing out to host memory; "
            "leave --swap-memory and --preemption out"
        )
    if not swap or config.preemption == "recompute":
        return Recompute()
    return Swap() if config.preemption == "swap" else Auto(costs())
