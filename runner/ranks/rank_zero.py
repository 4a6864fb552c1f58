"""Rank 0 of an engine over several ranks: starts the others, and has them follow each step."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import msgspec
import torch
from torch import distributed

from turnout.config import EngineConfig
from turnout.core.errors import CollectiveError, ConfigError, ModelError
from turnout.core.interfaces.collective import Collective
from turnout.core.interfaces.compute import Runner
from turnout.core.interfaces.kv import KVCache, PoolSize
from turnout.core.interfaces.models import ModelFamily
from turnout.core.scheduling.guarded_eviction import GuardedEviction
from turnout.core.scheduling.preemption import SwapCosts
from turnout.core.types.model_spec import ModelSpec
from turnout.core.types.plan import Logits, Plan
from turnout.models.families.moe import MoeSpec
from turnout.models.sharding.plan import ShardPlan, stages_of
from turnout.models.sharding.stages import Stage
from turnout.runner.execution.model_runner import ModelRunner
from turnout.runner.memory.budget import GpuRoom, format_bytes
from turnout.runner.ranks.followed_runner import FollowedRunner, FrameWriter, StagedRunner
from turnout.runner.ranks.hosts import RankHosts
from turnout.runner.ranks.measuring import Measuring, measure_together
from turnout.runner.ranks.processes import Ranks
from turnout.runner.ranks.recorded_cache import RecordedEviction, Recording, recorded
from turnout.runner.ranks.share import RankShare

__all__ = ["Loaded", "RankZero", "RankedPipeline", "RankedRunner", "check_experts", "check_ranks"]


class Loaded(msgspec.Struct, array_like=True):
    """A follower's first word: its part of the model is in memory."""

    weights: int
    """Bytes."""
    checkpoint: str
    """Its `checkpoint_digest`: on another machine it may be another one."""
    room: GpuRoom | None = None
    """What its GPU leaves; None: it computes on a CPU."""


def check_ranks(config: EngineConfig, spec: ModelSpec, device: torch.device) -> None:
    """Raises ConfigError for what ranks cannot do, by name; called before anything is loaded.

    device: rank 0's.
    """
    if config.enable_expert_parallel:
        check_experts(spec, config.tensor_parallel_size)
    if config.stage_layers and len(config.stage_layers) != config.pipeline_parallel_size:
        raise ConfigError(
            f"pipeline_layers={config.pipeline_layers} is for {len(config.stage_layers)} stages; "
            f"pipeline_parallel_size is {config.pipeline_parallel_size}"
        )
    hosts = RankHosts.of(config)
    if config.ranks == 1:
        return
    asked = f"tensor_parallel_size={config.tensor_parallel_size}"
    if config.pipeline_parallel_size > 1:
        asked = f"pipeline_parallel_size={config.pipeline_parallel_size}"
        if spec.head is not None or not (spec.generates or spec.encoder):
            raise ConfigError(f"{asked} cannot divide {spec.architecture}, which generates nothing")
    if spec.encoder:
        raise ConfigError(f"{asked} cannot divide {spec.architecture}, an encoder; take replicas")
    if config.async_scheduling:
        raise ConfigError(f"{asked} does not go with async_scheduling; leave one of them out")
    if device.type == "cuda":
        _check_gpus(asked, device.index or 0, hosts.each)


def _check_gpus(asked: str, first: int, each: int) -> None:
    """Raises ConfigError unless every rank of this machine has a GPU, from the one of that number on."""
    seen = torch.cuda.device_count()
    if first + each > seen:
        raise ConfigError(
            f"{asked} needs {each} GPUs of this machine, from cuda:{first} on, one for each rank; torch sees "
            f"{seen}. Take fewer ranks, or --device cpu"
        )
    if not distributed.is_nccl_available():
        raise ConfigError(f"{asked} needs a PyTorch built with NCCL, by which ranks on GPUs add up tensors")


def check_experts(spec: ModelSpec, ranks: int) -> None:
    """Raises ConfigError for a model whose experts cannot be given out to so many ranks."""
    if not isinstance(spec, MoeSpec):
        raise ConfigError(
            f"enable_expert_parallel: {spec.architecture} is no family of Turnout's that has experts; leave "
            "it out"
        )
    if ranks == 1:
        raise ConfigError(
            "enable_expert_parallel gives out experts to the ranks of --tensor-parallel-size, and there is "
            "one; take two or more, or leave it out"
        )
    if spec.experts < ranks:
        raise ConfigError(
            f"enable_expert_parallel: {spec.architecture} has {spec.experts} experts for {ranks} ranks; take "
            f"--tensor-parallel-size {spec.experts} or less"
        )


@dataclass(eq=False)
class RankZero:
    """The other ranks as rank 0 has them, and its own share of the model.

    They end when this object is gone, at the latest with this process.
    """

    ranks: Ranks
    share: RankShare
    recording: Recording
    weights: int = 0
    """Bytes of all other ranks' weights."""
    others: list[GpuRoom] = field(default_factory=list)
    """What the GPUs of all other ranks leave; empty where they compute on CPUs."""

    @classmethod
    def start(
        cls, config: EngineConfig, family: ModelFamily, spec: ModelSpec, model: str | None = None
    ) -> RankZero:
        """Starts the other ranks, which load their shares while this one loads its own.

        config: as rank 0 has decided it, folder, dtype and kernels, so that others decide nothing. model:
        what ranks on other machines find it by; None: the same.
        """
        if config.pipeline_parallel_size > 1:  # refused before a process is started
            stages_of(family, spec, config.pipeline_parallel_size, config.stage_layers)
        ranks = Ranks.start(config, config.ranks, hosts=RankHosts.of(config), model=model)

        def joined(opening: Callable[[], Collective]) -> Collective:
            return ranks.join(partial(_on_device, config.device, opening))

        try:
            share = RankShare.of(config, ranks.meetings, 0, family, spec, joined)
        except CollectiveError as error:
            verdict = ranks.verdict(error)
            ranks.close()
            raise verdict from error
        except BaseException:
            ranks.close()
            raise
        group = cls(ranks, share, Recording())
        weakref.finalize(group, _close, ranks, share.groups)
        return group

    @property
    def size(self) -> int:
        return self.ranks.size

    @property
    def shards(self) -> ShardPlan:
        return self.share.shards

    def eviction(self, policy: GuardedEviction) -> GuardedEviction:
        """Returns what asks `policy`, and tells followers what it answered."""
        return RecordedEviction(policy, self.recording)

    def wait_until_loaded(self, digest: str) -> None:
        """Returns when all ranks have their weights. Raises RankLost, and ModelError for another checkpoint
        than that of this rank, whose digest is given."""
        for _ in range(self.size - 1):
            rank, text = self.ranks.receive()
            loaded = msgspec.msgpack.decode(text, type=Loaded)
            if loaded.checkpoint != digest:
                raise ModelError(
                    f"rank {rank} has another checkpoint than rank 0 (its digest is {loaded.checkpoint}, "
                    f"that of rank 0 {digest}); copy the model's folder to its machine anew"
                )
            self.weights += loaded.weights
            self.others += [] if loaded.room is None else [loaded.room]

    def rooms(self, own: GpuRoom | None) -> list[GpuRoom]:
        """Returns what the GPUs of all ranks leave. own: of this rank; None: ranks compute on CPUs."""
        return [] if own is None else [own, *self.others]

    def measure(self, runner: ModelRunner, cache: KVCache, room: int, length: int, chunk: int) -> SwapCosts:
        """Measures what swapping costs, on all ranks at once; `cache` has that room. Raises RankLost."""
        with self.blaming():
            return measure_together(runner, cache, Measuring(room, length, chunk), self.ranks.send)

    @contextmanager
    def blaming(self) -> Iterator[None]:
        """Says which rank is lost, and how it ended, where the block fails because of it."""
        try:
            yield
        except CollectiveError as error:
            raise self.ranks.verdict(error) from error

    def books(self, cache: KVCache, size: PoolSize) -> KVCache:
        """Returns what the scheduler keeps its books in, and has followers make a cache of that size."""
        self.ranks.send(msgspec.msgpack.encode((size.tokens, size.swap, size.step)))
        return recorded(cache, self.recording)

    def runner(self, runner: ModelRunner, cache: KVCache) -> RankedRunner:
        """Returns what runs a step on all ranks. cache: the one of `runner`."""
        frames = FrameWriter(cache, self.recording)
        if isinstance(runner.model, Stage):
            return RankedPipeline(StagedRunner(runner, runner.model, frames, self.ranks.send), self)
        return RankedRunner(FollowedRunner(runner, frames, self.ranks.send), self)

    def describe(self, weights: int) -> str:
        """Words the sums. weights: bytes of this rank's."""
        parts, stage = self.shards.collective.size, self.shards.stage
        divided = [f"tensor parallel: {parts} ranks, which add up by {self.share.adds_by}"] * (parts > 1)
        if self.shards.whole_experts:
            divided.append("expert parallel: each has some experts whole")
        if stage is not None:
            pieces = f"pipeline parallel: {stage.line.size} stages, of which this has {len(stage.layers)}"
            divided.append(f"{pieces} layers, joined by {self.share.joined_by}")
        if "nccl" in (self.share.adds_by, self.share.joined_by):
            divided.append("each on a GPU of its own, which has not been measured yet")
        return (
            f"{'; '.join(divided)}; weights of all {format_bytes(weights + self.weights)}, of this rank "
            f"{format_bytes(weights)}; the KV pool is that of all ranks together"
        )


def _on_device(device: str, opening: Callable[[], Collective]) -> Collective:
    """Opens a group in another thread than that which has chosen this rank's device."""
    if device.startswith("cuda"):
        torch.cuda.set_device(device)
    return opening()


def _close(ranks: Ranks, groups: Sequence[Collective]) -> None:
    """The groups first: they may still need where ranks met."""
    try:
        for each in groups:
            each.close()
    finally:
        ranks.close()


class RankedRunner:
    """Says which rank is lost, where a step fails because of it; implements Runner."""

    def __init__(self, runner: Runner, group: RankZero) -> None:
        self._runner, self._group = runner, group

    def run(self, plan: Plan) -> Logits:
        with self._group.blaming():
            return self._runner.run(plan)


class RankedPipeline(RankedRunner):
    """The same of a pipeline; implements PipelinedRunner."""

    def __init__(self, runner: StagedRunner, group: RankZero) -> None:
        super().__init__(runner, group)
        self._staged = runner
        self.stages = runner.stages

    def begin(self, plan: Plan) -> None:
        with self._group.blaming():
            self._staged.begin(plan)

    def finish(self) -> Logits:
        with self._group.blaming():
            return self._staged.finish()
