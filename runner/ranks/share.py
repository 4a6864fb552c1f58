"""A rank's place among the ranks of an engine, the groups it is in, and its share of the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from turnout.config import EngineConfig
from turnout.core.interfaces.collective import Collective
from turnout.core.interfaces.models import ModelFamily
from turnout.core.types.model_spec import ModelSpec
from turnout.kernels.collectives import collective_of_machine, open_collective
from turnout.models.sharding.plan import ShardPlan, plan_shards
from turnout.runner.ranks.hosts import RankHosts
from turnout.runner.ranks.meetings import Meetings

__all__ = ["RankShare"]

BETWEEN_MACHINES = "gloo"
BETWEEN_GPUS = "nccl"


def _join(opening: Callable[[], Collective]) -> Collective:
    return opening()


@dataclass(frozen=True)
class RankShare:
    """What one rank has: ``rank = stage * tensor_parallel_size + part``.

    Groups are numbered from 0: first one for each stage, whose ranks divide its layers, then one for each
    part, whose ranks are the stages of that part.
    """

    adds_by: str
    """The collective of those that divide its layers."""
    joined_by: str
    """The collective of the stages."""
    groups: tuple[Collective, ...]
    """Those that this rank is in."""
    shards: ShardPlan

    @classmethod
    def of(
        cls,
        config: EngineConfig,
        meetings: Meetings,
        rank: int,
        family: ModelFamily,
        spec: ModelSpec,
        join: Callable[[Callable[[], Collective]], Collective] = _join,
    ) -> RankShare:
        """Joins the groups of a rank. Raises ConfigError for a model that cannot be divided, and
        CollectiveError where a rank does not come.

        config: with this rank's own device, ``cpu`` or ``cuda:N``, which is the current one; join: returns
        the group that the function opens which it is given.
        """
        parts, stages = config.tensor_parallel_size, config.pipeline_parallel_size
        stage, part = divmod(rank, parts)
        hosts, names = RankHosts.of(config), list[str]()

        def joined(members: range, group: int) -> Collective:
            local = hosts.share_machine(members)
            names.append(_collective(config.device, local=local))
            meeting = meetings.here if local else meetings.between
            assert meeting is not None, "there is one where there are several machines"
            opening = partial(open_collective, names[-1], meeting, members.index(rank), len(members), group)
            return join(opening)

        groups = [joined(range(stage * parts, (stage + 1) * parts), stage)]
        line = joined(range(part, parts * stages, parts), stages + part) if stages > 1 else None
        shards = plan_shards(
            family,
            spec,
            groups[0],
            line,
            config.stage_layers,
            whole_experts=config.enable_expert_parallel,
        )
        groups += [] if line is None else [line]
        return cls(names[0], names[-1], tuple(groups), shards)


def _collective(device: str, *, local: bool) -> str:
    """Returns the collective of ranks on such devices. local: they are on one machine."""
    if device.startswith("cuda"):
        return BETWEEN_GPUS
    return collective_of_machine() if local else BETWEEN_MACHINES
