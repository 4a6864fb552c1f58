"""Rank 0 of an engine over several ranks: starts the others, and has them follow each step."""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import msgspec

from turnout.config import EngineConfig
from turnout.core.errors import CollectiveError, ConfigError
from turnout.core.interfaces.collective import Collective
from turnout.core.interfaces.compute import Runner
from turnout.core.interfaces.kv import KVCache, PoolSize
from turnout.core.interfaces.models import ModelFamily
from turnout.core.scheduling.guarded_eviction import GuardedEviction
from turnout.core.types.model_spec import ModelSpec
from turnout.core.types.plan import Logits, Plan
from turnout.kernels.collectives import collective_of_machine, open_collective
from turnout.models.sharding.plan import ShardPlan, plan_shards
from turnout.runner.memory.budget import format_bytes
from turnout.runner.ranks.followed_runner import FollowedRunner, FrameWriter
from turnout.runner.ranks.processes import Ranks
from turnout.runner.ranks.recorded_cache import RecordedEviction, Recording, recorded

__all__ = ["Loaded", "RankZero", "check_ranks"]


class Loaded(msgspec.Struct, array_like=True):
    """A follower's first word: its part of the model is in memory."""

    weights: int
    """Bytes."""


def check_ranks(config: EngineConfig, spec: ModelSpec, device: str) -> None:
    """Raises ConfigError for what ranks cannot do, by name; called before anything is loaded."""
    if config.pipeline_parallel_size > 1:
        raise ConfigError(
            f"pipeline_parallel_size={config.pipeline_parallel_size}: layers cannot be divided between ranks "
            "yet; take --tensor-parallel-size, which divides every layer"
        )
    if config.enable_expert_parallel:
        raise ConfigError(
            "enable_expert_parallel: experts cannot be given out whole to ranks yet; with "
            "--tensor-parallel-size alone, each rank has a part of every expert"
        )
    size = config.tensor_parallel_size
    if size == 1:
        return
    asked = f"tensor_parallel_size={size}"
    if device != "cpu":
        raise ConfigError(f"{asked} works on a CPU so far, not on {device}; take --device cpu, or replicas")
    if spec.encoder:
        raise ConfigError(f"{asked} cannot divide {spec.architecture}, an encoder; take replicas")
    if config.async_scheduling:
        raise ConfigError(f"{asked} does not go with async_scheduling; leave one of them out")
    if config.preemption == "auto" and config.swap_memory:
        raise ConfigError(
            f"{asked}: preemption=auto would measure what swapping costs, which takes all ranks; choose "
            "--preemption swap or --preemption recompute"
        )


@dataclass(eq=False)
class RankZero:
    """The other ranks as rank 0 has them, and its own share of the model.

    They end when this object is gone, at the latest with this process.
    """

    ranks: Ranks
    collective: Collective
    shards: ShardPlan
    recording: Recording
    name: str
    """Of the collective."""
    weights: int = 0
    """Bytes of all other ranks' weights."""

    @classmethod
    def start(cls, config: EngineConfig, family: ModelFamily, spec: ModelSpec) -> RankZero:
        """Starts the other ranks, which load their shares while this one loads its own.

        config: as rank 0 has decided it, folder, dtype and kernels, so that others decide nothing.
        """
        size = config.tensor_parallel_size
        ranks = Ranks.start(config, size)
        try:
            name = collective_of_machine()
            collective = open_collective(name, ranks.meeting, 0, size)
            shards = plan_shards(family, spec, collective)
        except CollectiveError as error:
            verdict = ranks.verdict(error)
            ranks.close()
            raise verdict from error
        except BaseException:
            ranks.close()
            raise
        ranks.abort_with(collective.abort)
        group = cls(ranks, collective, shards, Recording(), name)
        weakref.finalize(group, _close, ranks, collective)
        return group

    @property
    def size(self) -> int:
        return self.collective.size

    def eviction(self, policy: GuardedEviction) -> GuardedEviction:
        """Returns what asks `policy`, and tells followers what it answered."""
        return RecordedEviction(policy, self.recording)

    def wait_until_loaded(self) -> None:
        """Returns when all ranks have their weights. Raises RankLost."""
        for _ in range(self.size - 1):
            self.weights += msgspec.msgpack.decode(self.ranks.receive().text, type=Loaded).weights

    def books(self, cache: KVCache, size: PoolSize) -> KVCache:
        """Returns what the scheduler keeps its books in, and has followers make a cache of that size."""
        self.ranks.send(msgspec.msgpack.encode((size.tokens, size.swap, size.step)))
        return recorded(cache, self.recording)

    def runner(self, runner: Runner, cache: KVCache) -> Runner:
        """Returns what runs a step on all ranks. cache: the one of `runner`."""
        frames = FrameWriter(cache, self.recording)
        return _Ranked(FollowedRunner(runner, frames, self.ranks.send), self)

    def describe(self, weights: int) -> str:
        """Words the sums. weights: bytes of this rank's."""
        return (
            f"tensor parallel: {self.size} ranks, which add up by {self.name}; weights of all "
            f"{format_bytes(weights + self.weights)}, of this rank {format_bytes(weights)}; the KV pool is "
            "that of all ranks together"
        )


def _close(ranks: Ranks, collective: Collective) -> None:
    """The collective first: it may still need where ranks met."""
    collective.close()
    ranks.close()


class _Ranked:
    """Says which rank is lost, where a step fails because of it; implements Runner."""

    def __init__(self, runner: FollowedRunner, group: RankZero) -> None:
        self._runner, self._group = runner, group

    def run(self, plan: Plan) -> Logits:
        try:
            return self._runner.run(plan)
        except CollectiveError as error:
            raise self._group.ranks.verdict(error) from error
