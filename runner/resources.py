"""The resources that decoding strategies build on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from turnout.core.clock import Clock
from turnout.core.engine.observers import Observers
from turnout.core.interfaces.kv import KVBackend, PoolSize
from turnout.core.interfaces.logits_processor import ServedModel
from turnout.core.interfaces.observers import WatchingHook
from turnout.core.interfaces.resources import Companion
from turnout.core.registry.registry import Registry
from turnout.core.types.model_spec import ModelSpec
from turnout.plugins.defaults import UNQUANTIZED
from turnout.runner.attention_features import check_attention
from turnout.runner.checkpoint import open_checkpoint
from turnout.runner.compute_setup import ComputeSetup
from turnout.runner.execution.model_runner import ModelRunner
from turnout.runner.kv_memory import KVHalves
from turnout.runner.memory.budget import Budget, format_bytes, weight_bytes
from turnout.runner.policies import build_eviction, kv_for_model
from turnout.runner.weights import load_weights, quantization_of

__all__ = ["EngineResources"]


@dataclass
class EngineResources:
    """What decoding strategies are given at start-up. Implements Resources.

    It also keeps account of what strategies took, for the assembly of the engine.
    """

    registry: Registry
    kv: KVBackend
    model: ServedModel
    spec: ModelSpec
    budget: Budget
    setup: ComputeSetup
    clock: Clock
    observers: Observers
    summary: list[str] = field(default_factory=list)
    """A line for each companion model, with its sums."""
    taken: int = 0
    """Bytes of KV memory that companion models have."""

    @property
    def max_batched_tokens(self) -> int:
        return self.budget.max_batched_tokens

    def companion(
        self, name: str, *, memory: int | None = None, quantization: str | None = None
    ) -> Companion:
        quantization = quantization or UNQUANTIZED
        config = self.budget.config
        checkpoint = open_checkpoint(
            self.registry,
            name,
            implementation=config.model_impl,
            trust_remote_code=config.trust_remote_code,
        )
        check_attention(self.registry, self.kv, checkpoint.spec)
        context = self.setup.context
        model = load_weights(self.registry, checkpoint, quantization, context, progress=False)
        kv = kv_for_model(self.kv, checkpoint.spec)
        halves = KVHalves(kv, checkpoint.spec, context)
        with halves.blamed("bytes_per_token"):
            bytes_per_token = kv.bytes_per_token(checkpoint.spec, context.dtype.itemsize)
        size = PoolSize(self.budget.tokens_beside(name, bytes_per_token, memory))
        cache = halves.cache(size, build_eviction(self.registry, self.budget.config, self.kv))
        with halves.blamed("holds"):
            self.budget.check_beside(name, cache, kv.positions(1) * bytes_per_token)
        attention = halves.attention(cache)
        pool = cache.capacity * bytes_per_token
        self.taken += pool
        kind = quantization_of(checkpoint, quantization)
        quantized = "" if kind == UNQUANTIZED else f" quantization {kind},"
        self.summary.append(
            f"beside it {name}:{quantized} weights {format_bytes(weight_bytes(model))}, "
            f"KV pool {format_bytes(pool)} = {cache.capacity:,} tokens"
        )
        runner = ModelRunner(model, attention, context.device, self.setup.capture)
        return Companion(checkpoint.folder, checkpoint.spec, runner, cache)

    def watch_steps(self, name: str, hook: Callable[..., object]) -> None:
        self.observers.watch_steps(WatchingHook(name, hook))
