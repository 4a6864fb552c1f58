"""Sizes the host memory to which preempted requests are swapped out."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.core.errors import ConfigError, NoRoom
from turnout.runner.memory.budget import Budget, format_bytes
from turnout.runner.memory.host_memory import free_host_memory

__all__ = ["SwapMemory"]

GPU_DEFAULT = 4 * 2**30
"""Bytes beside a GPU, unless configured. None beside a CPU: there a larger KV pool does more."""
HOST_SHARE = 0.5
"""At most this share of the free memory, unless configured."""


@dataclass(frozen=True)
class SwapMemory:
    """The swap memory that a configuration asks for, in bytes and in positions."""

    budget: Budget

    def positions(self, pool: int) -> int:
        """Returns how many positions of swap memory to have, beside a KV pool of `pool` positions.

        Raises ConfigError, with the sums, where that does not go together.
        """
        config = self.budget.config
        if config.preemption == "recompute" and config.swap_memory:
            raise ConfigError(
                f"swap_memory={format_bytes(config.swap_memory)} is of no use with preemption=recompute, "
                "which swaps nothing out; leave one of them out"
            )
        if not self.budget.bytes_per_token:
            return 0
        wanted = config.swap_memory
        if wanted is None:
            wanted = 0 if config.preemption == "recompute" else self._default()
        if config.preemption == "swap" and not wanted:
            raise ConfigError(
                "preemption=swap moves requests to host memory, but swap_memory is 0, the default on CPU; "
                "give some, such as --swap-memory 4GiB, or leave --preemption out"
            )
        if config.swap_memory:
            self._check(wanted, pool)
        return wanted // self.budget.bytes_per_token

    def _default(self) -> int:
        if self.budget.device.type == "cpu":
            return 0
        return min(GPU_DEFAULT, int(HOST_SHARE * self.budget.config.memory_share * free_host_memory()))

    def _check(self, wanted: int, pool: int) -> None:
        """Checks configured swap memory: it must be there, and one request of the full length must fit."""
        budget, free = self.budget, free_host_memory()
        beside = pool * budget.bytes_per_token if budget.device.type == "cpu" else 0
        if wanted + beside > free:
            pool_too = f" beside a KV pool of {format_bytes(beside)}" if beside else ""
            raise NoRoom(
                f"swap_memory asks for {format_bytes(wanted)}{pool_too}, but the host has "
                f"{format_bytes(free)} free; ask for less"
            )
        if wanted < budget.request_bytes:
            raise ConfigError(
                f"swap_memory={format_bytes(wanted)} holds {wanted // budget.bytes_per_token:,} tokens, but "
                f"{budget.describe_request()}; raise --swap-memory or lower --max-model-len"
            )
