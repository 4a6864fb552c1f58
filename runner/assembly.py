"""From a configuration to an engine: the only place where all the parts meet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from turnout.core.admission import Limits
from turnout.core.clock import Clock, monotonic
from turnout.core.config import EngineConfig
from turnout.core.engine import Engine
from turnout.core.errors import ConfigError, ModelError, blaming
from turnout.core.interfaces import ModelFamily
from turnout.core.logits_processor import ServedModel
from turnout.core.messages import Ready
from turnout.core.model import ModelSpec
from turnout.core.plugin_spec import PluginSpec
from turnout.core.plugins import Registry
from turnout.core.scheduler import Capacity, Scheduler
from turnout.models.checkpoint import read_config, read_generation_config
from turnout.models.loading import load_model
from turnout.models.resolve import resolve_model
from turnout.runner.device import choose_device, choose_dtype
from turnout.runner.generation_config import end_tokens, sampling_defaults
from turnout.runner.kv_memory import KVHalves, KVMemory, build_kv_memory
from turnout.runner.memory import Budget, weight_bytes
from turnout.runner.model_runner import ModelRunner
from turnout.runner.policies import Policies, build_eviction, build_policies

__all__ = ["AssembledEngine", "build_engine"]

BATCHED_TOKENS = {"cpu": 512, "cuda": 8192}
"""Tokens a step computes at most, by device: a step should take no longer than a reader notices."""


@dataclass
class AssembledEngine:
    """An engine, what there is to say about it, and what can be changed while it runs."""

    engine: Engine
    ready: Ready
    folder: Path
    """Of the model's checkpoint, where its tokenizer is too."""
    registry: Registry
    scheduler: str
    """What the scheduling policy was built from, as ``NAME:option=value,…``."""

    def set_scheduler(self, spec: str) -> str:
        """Ask another policy from the next step on; returns `spec` as it was understood.

        Raises ConfigError, naming plugin and option, and then nothing has changed.
        """
        self.engine.scheduler.policy = self.registry.create("scheduler", spec)
        self.scheduler = str(PluginSpec.parse(spec))
        return self.scheduler


@dataclass(frozen=True)
class _Checkpoint:
    folder: Path
    family: ModelFamily
    spec: ModelSpec
    generation: Mapping[str, Any]


def build_engine(config: EngineConfig, *, clock: Clock = monotonic) -> AssembledEngine:
    """Load the model, size the KV pool and put the chosen policies in place.

    Raises TurnoutError, with one message that says what to do, for anything that cannot work.
    """
    registry = Registry.load(config_folder=config.plugins_path)
    policies = build_policies(registry, config)
    checkpoint = _open(config, registry)
    device = choose_device(config.device)
    dtype = choose_dtype(config.dtype, checkpoint.spec.dtype, device)
    budget = _budget(config, checkpoint.spec, policies, device, dtype)
    limits = _limits(config, checkpoint, budget)
    # Before the weights: what a processor makes of the vocabulary is ready by the time they are there.
    policies.processors.start(ServedModel(checkpoint.folder, limits.vocab_size, limits.eos_token_ids))
    model = load_model(
        checkpoint.folder,
        checkpoint.family,
        checkpoint.spec,
        device=device,
        dtype=dtype,
        quantizer=policies.quantizer,
    )
    halves = KVHalves(policies.kv, config.kv, checkpoint.spec, device, dtype)
    spare = build_eviction(registry, config, policies.kv)
    kv = build_kv_memory(halves, budget, model, policies.eviction, spare)
    engine = Engine(
        _scheduler(config, policies, kv, budget),
        ModelRunner(model, kv.attention, device),
        policies.decodings,
        limits,
        clock,
        registry.observers(),
        policies.processors,
    )
    ready = Ready(
        model=config.model,
        max_model_len=budget.max_model_len,
        vocab_size=checkpoint.spec.vocab_size,
        defaults=_defaults(checkpoint.generation, policies),
        kv=str(PluginSpec.parse(config.kv)),
        kv_bytes_per_token=budget.bytes_per_token,
        summary=[
            _describe_model(config, checkpoint.spec, model, device, dtype),
            _describe_policies(config),
            budget.describe(kv.cache, weight_bytes(model)),
            kv.describe_preemption(budget.bytes_per_token),
        ],
    )
    return AssembledEngine(
        engine, ready, checkpoint.folder, registry, str(PluginSpec.parse(config.scheduler))
    )


def _scheduler(config: EngineConfig, policies: Policies, kv: KVMemory, budget: Budget) -> Scheduler:
    return Scheduler(
        policies.scheduler,
        kv.cache,
        Capacity(tokens=budget.max_batched_tokens, sequences=config.max_num_seqs),
        policies.predictor,
        preemption=kv.preemption,
        strict=config.strict_plugins,
    )


def _limits(config: EngineConfig, checkpoint: _Checkpoint, budget: Budget) -> Limits:
    return Limits(
        max_model_len=budget.max_model_len,
        vocab_size=checkpoint.spec.vocab_size,
        max_waiting=config.max_waiting,
        eos_token_ids=_eos_token_ids(checkpoint),
    )


# ------------------------------------------------------------------ the checkpoint


def _open(config: EngineConfig, registry: Registry) -> _Checkpoint:
    folder = resolve_model(config.model, revision=config.revision)
    raw = read_config(folder)
    architectures = raw.get("architectures")
    if not (isinstance(architectures, list) and architectures and isinstance(architectures[0], str)):
        raise ModelError(
            f"{folder / 'config.json'} names no architecture; expected a list of names under 'architectures'"
        )
    family = registry.family(architectures[0])
    with blaming(f"the model family of {architectures[0]}"):
        spec = family.spec(raw)
    return _Checkpoint(folder, family, spec, read_generation_config(folder))


def _eos_token_ids(checkpoint: _Checkpoint) -> frozenset[int]:
    """Only what the model can produce: some checkpoints name -1, or tokens beyond their vocabulary."""
    stated = {*checkpoint.spec.eos_token_ids, *end_tokens(checkpoint.generation)}
    return frozenset(stated.intersection(range(checkpoint.spec.vocab_size)))


def _defaults(generation: Mapping[str, Any], policies: Policies) -> dict[str, Any]:
    """The decoding's own defaults, then the checkpoint's."""
    return {**sampling_defaults(generation), **policies.defaults}


# ------------------------------------------------------------------ the sums


def _budget(
    config: EngineConfig, spec: ModelSpec, policies: Policies, device: torch.device, dtype: torch.dtype
) -> Budget:
    max_model_len = config.max_model_len or spec.max_positions
    if max_model_len > spec.max_positions:
        raise ConfigError(
            f"max_model_len={max_model_len:,} exceeds the model's {spec.max_positions:,} positions; lower it"
        )
    return Budget(
        config=config,
        spec=spec,
        device=device,
        bytes_per_token=policies.kv.bytes_per_token(spec, dtype.itemsize),
        unit=policies.kv.unit,
        max_model_len=max_model_len,
        max_batched_tokens=config.max_num_batched_tokens or BATCHED_TOKENS[device.type],
    )


def _describe_model(
    config: EngineConfig, spec: ModelSpec, model: torch.nn.Module, device: torch.device, dtype: torch.dtype
) -> str:
    millions = sum(parameter.numel() for parameter in model.parameters()) / 1e6
    place = (
        f"{torch.get_num_threads()} threads" if device.type == "cpu" else torch.cuda.get_device_name(device)
    )
    kind = str(dtype).removeprefix("torch.")
    what = f"{spec.architecture}, {millions:,.1f}M parameters"
    return f"model {config.model} ({what}) in {kind} on {device}, {place}"


def _describe_policies(config: EngineConfig) -> str:
    return (
        f"scheduler {config.scheduler}, kv {config.kv}, quantization {config.quantization}, "
        f"decoding {config.decoding} by default"
    )
