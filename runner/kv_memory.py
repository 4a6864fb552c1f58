"""Builds the engine's KV memory: both halves of the chosen backend, and the way of preempting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from turnout.core.errors import NoRoom, as_plugin_errors
from turnout.core.interfaces.attention import AttentionBackend
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.interfaces.eviction import EvictionPolicy
from turnout.core.interfaces.kv import KVBackend, KVCache, PoolSize
from turnout.core.plugin_faults import name_plugin, title_of
from turnout.core.scheduling.preemption import Auto, Preemption, Recompute, SwapCosts
from turnout.core.types.model_spec import ModelSpec
from turnout.runner.execution.model_runner import ModelRunner
from turnout.runner.memory import swap_costs
from turnout.runner.memory.budget import Budget, GpuRoom, format_bytes
from turnout.runner.memory.swap_memory import SwapMemory
from turnout.runner.memory.workspace import CudaMeter, step_bytes
from turnout.runner.policies import build_preemption

__all__ = ["KVHalves", "KVMemory", "build_kv_memory"]


@dataclass(frozen=True)
class KVHalves:
    """Builds the halves of a backend for one model. An exception of the backend names the backend.

    The halves are named as the backend is, so that a fault in service names it too.
    """

    backend: KVBackend
    spec: ModelSpec
    context: ComputeContext

    def cache(self, size: PoolSize, eviction: EvictionPolicy) -> KVCache:
        with self.blamed("cache"):
            cache = self.backend.cache(size, eviction)
        name_plugin(cache, self._title)
        return cache

    def attention(self, cache: KVCache) -> AttentionBackend:
        with self.blamed("attention"):
            attention = self.backend.attention(self.spec, cache, self.context)
        name_plugin(attention, self._title)
        return attention

    def blamed(self, method: str) -> AbstractContextManager[None]:
        """Returns a context in which exceptions name the backend and the method that is called in it."""
        return as_plugin_errors(f"{self._title}: {method}")

    @property
    def _title(self) -> str:
        return title_of(self.backend, "kv")


MeasureOnRanks = Callable[[ModelRunner, KVCache, int, int, int], SwapCosts]
"""Given a runner, its cache, that cache's room, and what `measure` takes, measures on all ranks."""


@dataclass(frozen=True)
class KVMemory:
    """The engine's KV memory."""

    cache: KVCache
    attention: AttentionBackend
    preemption: Preemption
    size: PoolSize
    """What the cache was asked to have."""
    sums: Sequence[str] = ()
    """A line that says what a GPU's memory is used for; none on a CPU."""

    def host_tokens(self, device: torch.device) -> int:
        """Returns how many positions may come to take host memory."""
        return self.cache.snapshot().swap + (self.cache.capacity if device.type == "cpu" else 0)

    def describe_preemption(self, bytes_per_token: int) -> str:
        if isinstance(self.preemption, Recompute):
            return "preemption recompute"
        positions = self.cache.snapshot().swap
        swap = f"swap memory {format_bytes(positions * bytes_per_token)} = {positions:,} tokens"
        if not isinstance(self.preemption, Auto):
            return f"preemption swap, {swap}"
        costs = self.preemption.costs
        return (
            f"preemption auto, {swap}: swap costs {1e6 * costs.moved_token:.3g} us a token, "
            f"recompute {1e6 * costs.computed_token:.3g} us"
        )


def build_kv_memory(
    halves: KVHalves,
    budget: Budget,
    model: nn.Module,
    eviction: EvictionPolicy,
    make_eviction: Callable[[], EvictionPolicy],
    *,
    taken: int = 0,
    on_ranks: MeasureOnRanks | None = None,
    rooms: Sequence[GpuRoom] = (),
) -> KVMemory:
    """Builds the KV memory; called when the weights are in memory.

    make_eviction: makes eviction policies for pools that only serve to measure; taken: bytes of KV memory
    that other models have; on_ranks: measures on several ranks; None: there is one; rooms: of the GPUs of
    several ranks; empty: there is one rank, or ranks compute on CPUs.

    Raises ConfigError, with the sums, where the memory that was asked for is not there or of no use.
    """
    activations = _activations(halves, budget, model, make_eviction()) if budget.sized_by_device else None
    swap, tokens = SwapMemory(budget), budget.tokens(taken, activations, rooms)
    size = PoolSize(tokens, swap.positions(tokens), budget.max_batched_tokens)
    cache = halves.cache(size, eviction)
    with halves.blamed("snapshot"):
        budget.check(cache)
        positions = cache.snapshot().swap
    costs = partial(_swap_costs, halves, budget, model, make_eviction, on_ranks)
    preemption = build_preemption(budget.config, positions, costs)
    attention = halves.attention(cache)
    sums = [] if activations is None else [budget.describe_gpu(activations)]
    return KVMemory(cache, attention, preemption, size, sums)


def _activations(halves: KVHalves, budget: Budget, model: nn.Module, eviction: EvictionPolicy) -> int:
    """Measures what the largest step takes of a GPU, in KV memory of its own, which is freed afterwards."""
    tokens, meter = budget.max_batched_tokens, CudaMeter(budget.device)
    cache = halves.cache(PoolSize(budget.whole(tokens)), eviction)
    try:
        runner = ModelRunner(model, halves.attention(cache), budget.device)
        return step_bytes(runner, cache, tokens, budget.max_model_len, meter)
    except torch.OutOfMemoryError as error:
        raise NoRoom(
            f"{budget.device} has too little memory for a step of max_num_batched_tokens={tokens:,} beside "
            "the weights; lower it, or quantize"
        ) from error


def _swap_costs(
    halves: KVHalves,
    budget: Budget,
    model: nn.Module,
    make_eviction: Callable[[], EvictionPolicy],
    on_ranks: MeasureOnRanks | None,
) -> SwapCosts:
    """Measures swapping and computing, in KV memory of its own, which is freed afterwards."""
    length = min(swap_costs.LENGTH, budget.max_model_len)
    room = budget.whole(length)
    cache = halves.cache(PoolSize(room, room), make_eviction())
    runner = ModelRunner(model, halves.attention(cache), budget.device)
    chunk = budget.max_batched_tokens
    if on_ranks is not None:
        return on_ranks(runner, cache, room, length, chunk)
    return swap_costs.measure(runner, cache, length, chunk)
