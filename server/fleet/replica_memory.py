"""Checks that a machine has the memory for all replicas that are to run on it, before the others start."""

from __future__ import annotations

from turnout.core.errors import ConfigError
from turnout.core.types.messages import Ready

__all__ = ["check_replicas_memory", "gib"]


def check_replicas_memory(first: Ready, replicas: int, free: int) -> None:
    """Raise ConfigError, with the sums, unless so many replicas fit into host memory.

    To be called when the first is ready: its weights are in memory then, and its KV pool is not yet. Each
    engine checks its own memory besides, but those that start beside it have taken nothing then.
    """
    pools = replicas * first.host_memory
    weights = (replicas - 1) * first.facts.weight_bytes if first.cpu_kernels else 0  # else on a GPU
    if replicas > 1 and pools + weights > free:
        asked = f"{replicas} x {gib(first.host_memory)} of KV and swap memory"
        if weights:
            asked += f" + {replicas - 1} x {gib(first.facts.weight_bytes)} of weights"
        raise ConfigError(
            f"{replicas} replicas ask for {asked} = {gib(pools + weights)} of host memory, but {gib(free)} "
            f"is free with the first one's weights loaded, {gib(pools + weights - free)} too little; lower "
            "--replicas or --kv-memory"
        )


def gib(size: int) -> str:
    """A size to be summed by eye: always in GiB."""
    return f"{size / 2**30:.2f} GiB"
