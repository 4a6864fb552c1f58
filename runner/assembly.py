"""From a configuration to an engine: the only place where all the parts meet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from turnout.core.admission import Limits
from turnout.core.clock import Clock, monotonic
from turnout.core.config import EngineConfig
from turnout.core.engine import Engine
from turnout.core.errors import blaming
from turnout.core.logits_processor import ServedModel
from turnout.core.messages import Ready
from turnout.core.model import ModelSpec
from turnout.core.plugin_spec import PluginSpec
from turnout.core.plugins import Registry
from turnout.kernels import Kernels, choose_kernels
from turnout.models.loading import count_parameters
from turnout.runner.checkpoint import Checkpoint, open_checkpoint
from turnout.runner.device import choose_device, choose_dtype
from turnout.runner.generation_config import sampling_defaults
from turnout.runner.graphs import choose_capture
from turnout.runner.kv_memory import KVHalves, build_kv_memory
from turnout.runner.mechanism import batched_tokens, build_scheduler, context_length
from turnout.runner.memory import Budget, weight_bytes
from turnout.runner.model_runner import ModelRunner
from turnout.runner.policies import Policies, build_eviction, build_policies, choices
from turnout.runner.quantization import describe_quantization
from turnout.runner.resources import EngineResources
from turnout.runner.weights import load_weights, quantization_of

__all__ = ["AssembledEngine", "build_engine"]


@dataclass
class AssembledEngine:
    """An engine, what there is to say about it, and what can be changed while it runs."""

    engine: Engine
    ready: Ready
    folder: Path
    """Of the model's checkpoint, where its tokenizer is too."""
    registry: Registry
    spec: ModelSpec
    device: torch.device
    dtype: torch.dtype
    """What is computed in."""
    scheduler: str
    """What the scheduling policy was built from, as ``NAME:option=value,…``."""

    def set_scheduler(self, spec: str) -> str:
        """Ask another policy from the next step on; returns `spec` as it was understood.

        Raises ConfigError, naming plugin and option, and then nothing has changed.
        """
        self.engine.scheduler.policy = self.registry.create("scheduler", spec)
        self.scheduler = str(PluginSpec.parse(spec))
        return self.scheduler


def build_engine(
    config: EngineConfig, *, clock: Clock = monotonic, registry: Registry | None = None
) -> AssembledEngine:
    """Load the model, size the KV pool and put the chosen policies in place.

    `registry`: where policies are looked up; None: what is installed, as `config` says.
    Raises TurnoutError, with one message that says what to do, for anything that cannot work.
    """
    registry = registry or Registry.of(config)
    policies = build_policies(registry, config)
    checkpoint = open_checkpoint(registry, config.model, config.revision)
    device = choose_device(config.device)
    dtype = choose_dtype(config.dtype, checkpoint.spec.dtype, device)
    kernels, kernels_note = choose_kernels(config.cpu_kernels, device, dtype, config.gpu_kernels)
    policies.kv.kernels = kernels if isinstance(kernels, Kernels) else None
    budget = _budget(config, checkpoint.spec, policies, device, dtype)
    limits = _limits(config, checkpoint, budget)
    # Before the weights: what a processor makes of the vocabulary is ready by the time they are there.
    served = ServedModel(checkpoint.folder, checkpoint.spec.vocab_size, checkpoint.eos_token_ids)
    policies.processors.start(served)
    model = load_weights(
        registry, checkpoint, config.quantization, device=device, dtype=dtype, kernels=kernels
    )
    observers = registry.observers()
    capture = choose_capture(device, config.enforce_eager)
    resources = EngineResources(
        registry, policies.kv, served, checkpoint.spec, budget, dtype, kernels, capture, clock, observers
    )
    _start_decodings(policies, resources)
    halves = KVHalves(policies.kv, config.kv, checkpoint.spec, device, dtype)
    spare = partial(build_eviction, registry, config, policies.kv)
    kv = build_kv_memory(halves, budget, model, policies.eviction, spare, taken=resources.taken)
    engine = Engine(
        build_scheduler(config, policies, kv.cache, kv.preemption, budget.max_batched_tokens),
        ModelRunner(model, kv.attention, device, capture),
        policies.decodings,
        limits,
        clock,
        observers,
        policies.processors,
    )
    ready = Ready(
        model=config.model,
        max_model_len=budget.max_model_len,
        vocab_size=checkpoint.spec.vocab_size,
        defaults=_defaults(checkpoint.generation, policies),
        kv=str(PluginSpec.parse(config.kv)),
        kv_bytes_per_token=budget.bytes_per_token,
        host_memory=kv.host_tokens(device) * budget.bytes_per_token
        + (resources.taken if device.type == "cpu" else 0),
        summary=[
            _describe_model(config, checkpoint, device, dtype),
            *([kernels_note] if kernels_note else []),
            _describe_policies(config, quantization_of(checkpoint, config.quantization)),
            *describe_quantization(
                model,
                checkpoint.family,
                checkpoint.spec,
                dtype=dtype,
                device=device,
                kernels=kernels,
                options=_quantizer_options(registry, config),
            ),
            budget.describe(kv.cache, weight_bytes(model)),
            *kv.sums,
            *resources.summary,
            kv.describe_preemption(budget.bytes_per_token),
        ],
    )
    return AssembledEngine(
        engine=engine,
        ready=ready,
        folder=checkpoint.folder,
        registry=registry,
        spec=checkpoint.spec,
        device=device,
        dtype=dtype,
        scheduler=str(PluginSpec.parse(config.scheduler)),
    )


def _quantizer_options(registry: Registry, config: EngineConfig) -> set[str]:
    name = PluginSpec.parse(config.quantization).name
    return {option.name for option in registry.options("quantization", name)}


def _start_decodings(policies: Policies, resources: EngineResources) -> None:
    for decoding in policies.decodings:
        with blaming(f"decoding strategy {type(decoding).__name__}"):
            decoding.start(resources)


def _limits(config: EngineConfig, checkpoint: Checkpoint, budget: Budget) -> Limits:
    return Limits(
        max_model_len=budget.max_model_len,
        vocab_size=checkpoint.spec.vocab_size,
        max_waiting=config.max_waiting,
        eos_token_ids=checkpoint.eos_token_ids,
    )


def _defaults(generation: Mapping[str, Any], policies: Policies) -> dict[str, Any]:
    """The decoding's own defaults, then the checkpoint's."""
    return {**sampling_defaults(generation), **policies.defaults}


# ------------------------------------------------------------------ the sums


def _budget(
    config: EngineConfig, spec: ModelSpec, policies: Policies, device: torch.device, dtype: torch.dtype
) -> Budget:
    return Budget(
        config=config,
        spec=spec,
        device=device,
        bytes_per_token=policies.kv.bytes_per_token(spec, dtype.itemsize),
        unit=policies.kv.unit,
        max_model_len=context_length(config, spec),
        max_batched_tokens=batched_tokens(config, device.type),
        rows=max(decoding.rows for decoding in policies.decodings),
    )


def _describe_model(
    config: EngineConfig, checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype
) -> str:
    millions = count_parameters(checkpoint.family, checkpoint.spec) / 1e6
    place = (
        f"{torch.get_num_threads()} threads" if device.type == "cpu" else torch.cuda.get_device_name(device)
    )
    kind = str(dtype).removeprefix("torch.")
    what = f"{checkpoint.spec.architecture}, {millions:,.1f}M parameters"
    return f"model {config.model} ({what}) in {kind} on {device}, {place}"


def _describe_policies(config: EngineConfig, quantization: str) -> str:
    *wrapping, decoding = [str(choice) for choice in choices(config, "decoding")]
    chosen = f"scheduler {config.scheduler}, kv {config.kv}, quantization {quantization}, "
    beside = {"eviction": config.kv_eviction, "length predictor": config.length_predictor}
    default = EngineConfig.model_fields["length_predictor"].default
    named = [f"{what} {name}" for what, name in beside.items() if name not in (None, default)]
    return ", ".join([f"{chosen}decoding {decoding} by default", *wrapping, *named])
