"""From a configuration to an engine: the only place where all the parts meet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from turnout.core.clock import Clock, monotonic
from turnout.core.config import EngineConfig
from turnout.core.engine import Engine, Limits
from turnout.core.errors import ConfigError, ModelError
from turnout.core.interfaces import KVCache, ModelFamily
from turnout.core.messages import Ready
from turnout.core.model import ModelSpec
from turnout.core.plugins import Registry
from turnout.core.scheduler import Capacity, Scheduler
from turnout.models.checkpoint import read_config, read_generation_config
from turnout.models.loading import load_model
from turnout.models.resolve import resolve_model
from turnout.runner.device import choose_device, choose_dtype
from turnout.runner.memory import Budget, weight_bytes
from turnout.runner.model_runner import ModelRunner
from turnout.runner.policies import Policies, build_policies

__all__ = ["AssembledEngine", "build_engine"]

BATCHED_TOKENS = {"cpu": 512, "cuda": 8192}
"""Tokens a step computes at most, by device: a step should take no longer than a reader notices."""

GENERATION_DEFAULTS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
"""What ``generation_config.json`` may say for requests that do not."""


@dataclass(frozen=True)
class AssembledEngine:
    """An engine, and what there is to say about it."""

    engine: Engine
    ready: Ready
    folder: Path
    """Of the model's checkpoint, where its tokenizer is too."""


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
    model = load_model(
        checkpoint.folder,
        checkpoint.family,
        checkpoint.spec,
        device=device,
        dtype=dtype,
        quantizer=policies.quantizer,
    )
    cache = policies.kv.cache(budget.tokens())
    budget.check(cache)
    attention = policies.kv.attention(checkpoint.spec, cache, device, dtype)
    engine = Engine(
        _scheduler(config, policies, cache, budget),
        ModelRunner(model, attention, device),
        policies.decodings,
        _limits(config, checkpoint, budget),
        clock,
        registry.observers(),
    )
    ready = Ready(
        model=config.model,
        max_model_len=budget.max_model_len,
        vocab_size=checkpoint.spec.vocab_size,
        defaults=_defaults(checkpoint.generation, policies),
        summary=[
            _describe_model(config, checkpoint.spec, model, device, dtype),
            _describe_policies(config),
            budget.describe(cache, weight_bytes(model)),
        ],
    )
    return AssembledEngine(engine, ready, checkpoint.folder)


def _scheduler(config: EngineConfig, policies: Policies, cache: KVCache, budget: Budget) -> Scheduler:
    return Scheduler(
        policies.scheduler,
        cache,
        Capacity(tokens=budget.max_batched_tokens, sequences=config.max_num_seqs),
        policies.predictor,
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
    architectures = raw.get("architectures") or []
    if not architectures:
        raise ModelError(
            f"{folder / 'config.json'} names no architecture; expected a list under 'architectures'"
        )
    family = registry.family(architectures[0])
    return _Checkpoint(folder, family, family.spec(raw), read_generation_config(folder))


def _eos_token_ids(checkpoint: _Checkpoint) -> frozenset[int]:
    stated = checkpoint.generation.get("eos_token_id")
    more = stated if isinstance(stated, list) else [] if stated is None else [stated]
    return frozenset({*checkpoint.spec.eos_token_ids, *more})


def _defaults(generation: Mapping[str, Any], policies: Policies) -> dict[str, Any]:
    """The decoding's own defaults, then the checkpoint's; a greedy checkpoint stays greedy."""
    stated = {name: generation[name] for name in GENERATION_DEFAULTS if generation.get(name) is not None}
    if generation.get("do_sample") is False:
        stated = {"temperature": 0.0}
    return {**stated, **policies.defaults}


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
