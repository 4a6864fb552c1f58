"""Assembles an engine from a configuration. This is the only place where all parts meet."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast

import torch
from torch import nn

from turnout.config import EngineConfig
from turnout.core.clock import Clock, monotonic
from turnout.core.engine.admission import Limits
from turnout.core.engine.engine import Engine
from turnout.core.errors import as_plugin_errors, describe_error
from turnout.core.interfaces.compute import Runner
from turnout.core.interfaces.decoding import Decoding
from turnout.core.interfaces.kv import PrefixAnnouncer
from turnout.core.interfaces.logits_processor import ServedModel
from turnout.core.plugin_faults import plugin_errors, title_of
from turnout.core.registry.registry import Registry
from turnout.core.registry.spec import PluginSpec
from turnout.core.scheduling.scheduler import Scheduler
from turnout.core.types.messages import ModelFacts, Ready
from turnout.core.types.model_spec import ModelSpec
from turnout.core.types.pooling import PoolingFacts
from turnout.kernels.gpu.staging import gather_rows, scatter_rows
from turnout.models.embedder.projections import load_projections
from turnout.models.gguf.summary import describe_types
from turnout.models.meta_model import count_parameters
from turnout.models.sharding.plan import spec_of_rank
from turnout.plugins.defaults import UNQUANTIZED
from turnout.runner.attention_features import check_attention, encoder_config
from turnout.runner.checkpoint import Checkpoint, open_checkpoint
from turnout.runner.choices import policy_choices
from turnout.runner.compute_setup import ComputeSetup
from turnout.runner.execution.model_runner import ModelRunner
from turnout.runner.fingerprint import checkpoint_digest, fingerprint
from turnout.runner.generation_config import sampling_defaults
from turnout.runner.kv_memory import KVHalves, KVMemory, build_kv_memory
from turnout.runner.memory.budget import Budget, weight_bytes
from turnout.runner.output_format import FoundFormat, find_format
from turnout.runner.policies import (
    Policies,
    build_eviction,
    build_observers,
    build_policies,
    build_scheduler,
    describe_kv,
    serving,
    show_figures,
)
from turnout.runner.pooling.building import build_pooling
from turnout.runner.pooling.pairs import find_pair_template
from turnout.runner.quantization_report import describe_quantization
from turnout.runner.ranks.hosts import RankHosts
from turnout.runner.ranks.processes import config_of_rank
from turnout.runner.ranks.rank_zero import RankedPipeline, RankZero, check_ranks
from turnout.runner.ranks.rooms import room_of_rank
from turnout.runner.resources import EngineResources
from turnout.runner.step_limits import batched_tokens, context_length, step_capacity
from turnout.runner.weights import load_weights, quantization_of
from turnout.text.vocabulary import tokenizer_digest

__all__ = ["AssembledEngine", "build_engine"]

logger = logging.getLogger(__name__)


@dataclass
class AssembledEngine:
    """An engine, with what its server tells of it and what can be changed while it runs."""

    engine: Engine
    ready: Ready
    folder: Path
    """The folder of the model's checkpoint, where its tokenizer is too."""
    registry: Registry
    spec: ModelSpec
    device: torch.device
    dtype: torch.dtype
    """Of activations."""
    scheduler: str
    """The spec of the scheduling policy, as ``NAME:option=value,…``."""

    def set_scheduler(self, spec: str) -> str:
        """Lets another policy schedule from the next step on; returns `spec` as it was understood.

        Raises ConfigError, naming plugin and option; then nothing has changed.
        """
        self.engine.scheduler.policy = self.registry.create("scheduler", spec)
        self.scheduler = str(PluginSpec.parse(spec))
        return self.scheduler


def build_engine(
    config: EngineConfig, *, clock: Clock = monotonic, registry: Registry | None = None
) -> AssembledEngine:
    """Loads the model, sizes the KV pool and puts the chosen policies in place.

    registry: where policies are looked up; None: among installed plugins, as `config` says.
    Raises TurnoutError, whose message says what to do, for anything that cannot work.
    """
    registry = registry or Registry.of(config)
    policies = build_policies(registry, config)
    checkpoint = open_checkpoint(
        registry,
        config.model,
        config.revision,
        config.model_impl,
        trust_remote_code=config.trust_remote_code,
        overrides=config.hf_overrides,
    )
    if checkpoint.spec.encoder:
        config = encoder_config(config, checkpoint.spec)
        policies = build_policies(registry, config)
    check_attention(registry, policies.kv, checkpoint.spec)
    format = find_format(registry, config.format, checkpoint.folder, config.chat_template)
    size = config.ranks
    setup = ComputeSetup.chosen(
        config if size == 1 else config_of_rank(config, 0, RankHosts.of(config).each),
        checkpoint.spec,
        overlapping=size == 1,
    )
    check_ranks(config, checkpoint.spec, setup.device)
    spec, parts, stages = checkpoint.spec, config.tensor_parallel_size, config.pipeline_parallel_size
    if size > 1:
        spec = spec_of_rank(
            checkpoint.family, spec, parts, stages, whole_experts=config.enable_expert_parallel
        )
    policies = serving(policies, spec)
    budget = _budget(config, spec, policies, setup, checkpoint.longest_text)
    group = None if size == 1 else _start_ranks(config, checkpoint, setup)
    if group is not None:
        policies = replace(policies, eviction=group.eviction(policies.eviction))
    # Before the weights are loaded: meanwhile processors prepare what they derive from the vocabulary.
    served = ServedModel(checkpoint.folder, checkpoint.spec.vocab_size, checkpoint.eos_token_ids)
    policies.processors.start(served, gather_rows, scatter_rows)
    shards = None if group is None else group.shards
    with nullcontext() if group is None else group.blaming():
        model = load_weights(registry, checkpoint, config.quantization, setup.context, shards=shards)
    if group is not None:
        group.wait_until_loaded(checkpoint_digest(checkpoint))
    observers = build_observers(registry, config)
    resources = EngineResources(
        registry, policies.kv, served, checkpoint.spec, budget, setup, clock, observers
    )
    by_name = _start_decodings(policies, resources)
    halves = KVHalves(policies.kv, spec if shards is None else shards.kv_spec, setup.context)
    make_eviction = partial(build_eviction, registry, config, policies.kv)
    on_ranks = None if group is None else group.measure
    rooms = (
        [] if group is None else group.rooms(room_of_rank(config, halves.backend, halves.spec, setup.context))
    )
    kv = build_kv_memory(
        halves,
        budget,
        model,
        policies.eviction,
        make_eviction,
        taken=resources.taken,
        on_ranks=on_ranks,
        rooms=rooms,
    )
    alone = ModelRunner(model, kv.attention, setup.device, None if checkpoint.spec.encoder else setup.capture)
    books, runner = kv.cache, cast(Runner, alone)
    if group is not None:
        books, runner = group.books(kv.cache, kv.size), group.runner(alone, kv.cache)
    embedder = checkpoint.embedder
    projection = (
        None
        if embedder is None
        else load_projections(embedder.projections, checkpoint.spec.hidden_size, setup.device)
    )
    pair = find_pair_template(checkpoint.folder, checkpoint.spec, embedder, config.chat_template)
    pooling = build_pooling(registry, config, checkpoint.spec, model, setup.dtype, embedder, projection, pair)
    engine = Engine(
        build_scheduler(
            config,
            policies,
            books,
            kv.preemption,
            step_capacity(config, setup.device.type, budget.max_batched_tokens),
            Scheduler,
        ),
        runner,
        policies.decodings,
        _limits(config, checkpoint, budget),
        clock,
        observers,
        policies.processors,
        policies.admission,
        pooling,
        overlaps=setup.overlaps,
        named_decodings=policies.named_decodings,
        pipeline=runner if isinstance(runner, RankedPipeline) else None,
    )
    engine.offer_decodings(by_name)
    show_figures(engine, policies, kv.cache)
    for decoding in by_name.values():
        with as_plugin_errors(f"{title_of(decoding, 'decoding')}: parts"):
            for kind, part in decoding.parts:
                engine.show_figures(kind, part, part.figures)
    return AssembledEngine(
        engine=engine,
        ready=_Parts(
            config, checkpoint, setup, policies, budget, model, resources, kv, format, pooling.facts, group
        ).ready(),
        folder=checkpoint.folder,
        registry=registry,
        spec=checkpoint.spec,
        device=setup.device,
        dtype=setup.dtype,
        scheduler=str(PluginSpec.parse(config.scheduler)),
    )


def _start_ranks(config: EngineConfig, checkpoint: Checkpoint, setup: ComputeSetup) -> RankZero:
    decided = {
        "model": str(checkpoint.folder),
        "device": str(setup.device),
        "dtype": str(setup.dtype).removeprefix("torch."),
        "cpu_kernels": setup.cpu_kernels,
    }
    config, model = config.model_copy(update=decided), config.model
    return RankZero.start(config, checkpoint.family, checkpoint.spec, model)


def _start_decodings(policies: Policies, resources: EngineResources) -> dict[str, Decoding]:
    """Starts all decoding strategies; returns those that a request may ask for by name.

    One that cannot start is left out, if no other request gets it.
    """
    for decoding in policies.decodings:
        with as_plugin_errors(f"{title_of(decoding, 'decoding')}: start"):
            decoding.start(resources)
    started = {}
    for name, decoding in policies.decodings_by_name.items():
        try:
            if decoding not in policies.decodings:
                decoding.start(resources)
        except plugin_errors() as error:
            logger.warning("decoding %s is not on offer: %s", name, describe_error(error))
        else:
            started[name] = decoding
    return started


def _limits(config: EngineConfig, checkpoint: Checkpoint, budget: Budget) -> Limits:
    return Limits(
        max_model_len=budget.max_model_len,
        vocab_size=checkpoint.spec.vocab_size,
        max_waiting=config.max_waiting,
        generates=checkpoint.spec.generates and not checkpoint.spec.encoder,
        eos_token_ids=checkpoint.eos_token_ids,
    )


def _budget(
    config: EngineConfig, spec: ModelSpec, policies: Policies, setup: ComputeSetup, longest: int | None
) -> Budget:
    """spec: of one rank's share, where there are several; the memory is that of all. longest: as of
    `context_length`."""
    kv, length, tokens = (
        policies.kv,
        context_length(config, spec, longest),
        batched_tokens(config, setup.device.type, spec, longest),
    )
    with as_plugin_errors(f"{title_of(kv, 'kv')}: positions"):
        request_tokens = kv.positions(length, tokens)
    return Budget(
        config=config,
        spec=spec,
        device=setup.device,
        bytes_per_token=config.tensor_parallel_size * kv.bytes_per_token(spec, setup.dtype.itemsize),
        unit=kv.unit,
        request_tokens=request_tokens,
        max_model_len=length,
        max_batched_tokens=tokens,
        rows=max(decoding.rows for decoding in policies.decodings),
    )


# ------------------------------------------------------------------ the start-up summary


@dataclass(frozen=True)
class _Parts:
    """The parts that an engine was assembled of, to describe it by."""

    config: EngineConfig
    checkpoint: Checkpoint
    setup: ComputeSetup
    policies: Policies
    budget: Budget
    model: nn.Module
    resources: EngineResources
    kv: KVMemory
    format: FoundFormat
    pooling: PoolingFacts
    group: RankZero | None

    def ready(self) -> Ready:
        return Ready(
            model=self.config.model,
            max_model_len=self.budget.max_model_len,
            vocab_size=self.checkpoint.spec.vocab_size,
            # The decoding's own defaults, then the checkpoint's.
            defaults={**sampling_defaults(self.checkpoint.generation), **self.policies.defaults},
            kv=describe_kv(self.resources.registry, self.config),
            kv_bytes_per_token=self.budget.bytes_per_token,
            host_memory=self._host_memory(),
            eos_token_ids=sorted(self.checkpoint.eos_token_ids),
            output_format=self.format.format,
            fingerprint=fingerprint(self.config, self.checkpoint, self.setup),
            facts=self._facts(),
            pooling=self.pooling,
            announces=isinstance(self.kv.cache, PrefixAnnouncer) and self.kv.cache.announces,
            resumes=all(decoding.resumes for decoding in self.policies.decodings_by_name.values()),
            cpu_kernels=self.setup.cpu_kernels,
            ranks=self.config.ranks,
            identity=self._identity(),
            summary=list(self._summary()),
        )

    def _identity(self) -> dict[str, str]:
        """What decides tokens, machines aside."""
        config = self.config
        return {
            "model": checkpoint_digest(self.checkpoint),
            "tokenizer": tokenizer_digest(self.checkpoint.folder),
            "dtype": str(self.setup.dtype).removeprefix("torch."),
            "quantization": config.quantization,
            "KV backend": describe_kv(self.resources.registry, config),
            "decoding": config.decoding,
            "context length": str(self.budget.max_model_len),
        }

    def _host_memory(self) -> int:
        device = self.setup.device
        beside = self.resources.taken if device.type == "cpu" else 0
        return self.kv.host_tokens(device) * self.budget.bytes_per_token + beside

    def _facts(self) -> ModelFacts:
        spec = self.checkpoint.spec
        quantization = quantization_of(self.checkpoint, self.config.quantization)
        dtype = str(self.setup.context.dtype).removeprefix("torch.")
        return ModelFacts(
            architecture=spec.architecture,
            parameters=count_parameters(self.checkpoint.family, spec),
            weight_bytes=weight_bytes(self.model) + (0 if self.group is None else self.group.weights),
            weights=dtype if quantization == UNQUANTIZED else quantization,
        )

    def _summary(self) -> Iterator[str]:
        """Yields the start-up summary: the chosen policies and the sums, a line each."""
        checkpoint, setup = self.checkpoint, self.setup
        millions = count_parameters(checkpoint.family, checkpoint.spec) / 1e6
        what = f"{checkpoint.spec.architecture}, {millions:,.1f}M parameters"
        yield f"model {self.config.model} ({what}) in {setup}"
        if setup.kernels_note:
            yield setup.kernels_note
        if setup.overlaps:
            yield "steps overlap: the next is handed to the device before this one's tokens are known"
        quantization = quantization_of(checkpoint, self.config.quantization)
        yield _describe_policies(self.resources.registry, self.config, quantization)
        dtype, device = str(setup.context.dtype).removeprefix("torch."), setup.context.device.type
        yield from describe_types(checkpoint.folder, dtype, device)
        if self.group is None:  # it tries layers, and those of several ranks compute together
            yield from describe_quantization(
                self.model,
                checkpoint.family,
                checkpoint.spec,
                context=setup.context,
                options=_quantizer_options(self.resources.registry, self.config),
            )
        if self.group is not None:
            yield self.group.describe(weight_bytes(self.model))
        yield self.budget.describe(self.kv.cache, self._facts().weight_bytes)
        yield from self.kv.sums
        yield from getattr(self.kv.attention, "summary", ())  # a protocol, which need not be derived from
        yield from self.resources.summary
        yield from filter(None, (self.format.told,))
        yield self.kv.describe_preemption(self.budget.bytes_per_token)


def _quantizer_options(registry: Registry, config: EngineConfig) -> set[str]:
    name = PluginSpec.parse(config.quantization).name
    return {option.name for option in registry.options("quantization", name)}


def _describe_policies(registry: Registry, config: EngineConfig, quantization: str) -> str:
    *wrapping, decoding = [str(choice) for choice in policy_choices(registry, config, "decoding")]
    chosen = (
        f"scheduler {config.scheduler}, kv {describe_kv(registry, config)}, quantization {quantization}, "
    )
    beside = ("kv_eviction", "length_predictor", "admission")
    chosen_ones = {field: getattr(config, field) for field in beside}
    named = [
        f"{field.removeprefix('kv_').replace('_', ' ')} {name}"
        for field, name in chosen_ones.items()
        if name != EngineConfig.model_fields[field].default
    ]
    return ", ".join([f"{chosen}decoding {decoding} by default", *wrapping, *named])
