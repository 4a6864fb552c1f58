"""From the server's configuration and a cost model to an engine on a virtual clock."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from turnout.config import EngineConfig
from turnout.core.engine.admission import Limits
from turnout.core.engine.engine import Engine
from turnout.core.errors import ConfigError, as_plugin_errors
from turnout.core.interfaces.kv import KVBackend, KVCache, PoolSize
from turnout.core.plugin_faults import title_of
from turnout.core.registry.registry import Registry
from turnout.core.registry.spec import PluginSpec
from turnout.lab.simulation.cost import CostModel
from turnout.lab.simulation.cost_runner import CostRunner
from turnout.lab.simulation.fast_forward_queues import FastForwardScheduler
from turnout.lab.simulation.reach import reaches_of
from turnout.lab.simulation.script import Script
from turnout.lab.simulation.virtual_engine import VirtualClock, virtual_engine
from turnout.runner.attention_features import check_attention
from turnout.runner.policies import (
    build_host_policies,
    build_observers,
    build_preemption,
    build_scheduler,
    serving,
)
from turnout.runner.step_limits import batched_tokens, context_length, step_capacity

__all__ = ["SimulatedEngine", "build_simulated", "check_simulated"]

GPU_SWAP = 4 * 2**30
"""Bytes of swap memory beside a GPU unless told otherwise, as the server has."""


@dataclass(frozen=True)
class SimulatedEngine:
    engine: Engine
    scheduler: FastForwardScheduler
    clock: VirtualClock
    runner: CostRunner
    script: Script
    backend: KVBackend
    watched: bool
    """A plugin wants to hear of every step from the engine."""


def build_simulated(
    config: EngineConfig, cost: CostModel, registry: Registry, running: type[CostRunner] = CostRunner
) -> SimulatedEngine:
    """The engine that `config` asks for. Its model, device, dtype and quantization are the cost model's.

    Raises ConfigError for what cannot work, as the server does, and for what is not simulated.
    """
    check_simulated(config)
    policies = build_host_policies(registry, config)
    check_attention(registry, policies.kv, cost.model)
    policies = serving(policies, cost.model)
    length, tokens = context_length(config, cost.model), batched_tokens(config, cost.device)
    with as_plugin_errors(f"{title_of(policies.kv, 'kv')}: cache"):
        position = policies.kv.bytes_per_token(cost.model, cost.itemsize)
        size = _pool(config, cost, position, policies.kv.positions(length, tokens))
        cache = policies.kv.cache(replace(size, step=tokens), policies.eviction)
        state = cache.snapshot()
    _check_pool(cache, length, position)
    if state.groups:  # a move is of the layers of one of them
        seconds = replace(cost.seconds, move=cost.seconds.move / len(state.groups))
        cost = msgspec.structs.replace(cost, seconds=seconds)
    preemption = build_preemption(config, state.swap, cost.swap_costs)
    capacity = step_capacity(config, cost.device, tokens)
    scheduler = build_scheduler(config, policies, cache, preemption, capacity, FastForwardScheduler)
    runner, script = running(cost.seconds, reaches_of(cost.model)), Script(cost.model.vocab_size)
    runner.queues = scheduler.queues
    limits = Limits(max_model_len=length, vocab_size=cost.model.vocab_size, max_waiting=config.max_waiting)
    observers = build_observers(registry, config)
    engine = virtual_engine(scheduler, runner, [script], limits, observers, policies.admission)
    return SimulatedEngine(
        engine, scheduler, runner.clock, runner, script, policies.kv, bool(observers.of_steps)
    )


def check_simulated(config: EngineConfig) -> None:
    """Raises ConfigError for what is not simulated."""
    if (
        config.spec_draft
        or config.spec_ngram
        or config.spec_tokens is not None
        or PluginSpec.parse(config.decoding).name == "speculative"
    ):
        raise ConfigError(
            "speculative decoding is not simulated: how many drafts are accepted depends on what is said; "
            "leave spec_draft, spec_ngram, spec_tokens and decoding=speculative out, or compare served arms, "
            "without --simulate"
        )


def _pool(config: EngineConfig, cost: CostModel, position: int, request: int) -> PoolSize:
    """As the server sizes it, the cost model standing in for the machine's free memory.

    position: bytes; request: positions that a request of the full length takes.
    """
    memory = config.kv_memory or min(cost.kv_memory, config.max_num_seqs * request * position)
    swap = config.swap_memory
    if swap is None:
        swap = 0 if config.preemption == "recompute" or cost.device == "cpu" else GPU_SWAP
    return PoolSize(memory // position, swap // position)


def _check_pool(cache: KVCache, length: int, position: int) -> None:
    if not cache.holds(length, 1):
        raise ConfigError(
            f"the KV pool of {cache.capacity:,} tokens ({position:,} bytes each) does not hold one request "
            f"of max_model_len={length:,}; raise --kv-memory or lower --max-model-len"
        )
