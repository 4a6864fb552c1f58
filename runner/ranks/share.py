"""A rank's place among the ranks of an engine, the groups it is in, and its share of the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from turnout.config import EngineConfig
from turnout.core.interfaces.collective import Collective
from turnout.core.interfaces.models import ModelFamily
from turnout.core.meeting import Meeting
from turnout.core.types.model_spec import ModelSpec
from turnout.kernels.collectives import collective_of_machine, open_collective
from turnout.models.sharding.plan import ShardPlan, plan_shards

__all__ = ["RankShare"]


@dataclass(frozen=True)
class RankShare:
    """What one rank has: ``rank = stage * tensor_parallel_size + part``.

    Groups are numbered from 0: first one for each stage, whose ranks divide its layers, then one for each
    part, whose ranks are the stages of that part.
    """

    name: str
    """Of the collective."""
    groups: tuple[Collective, ...]
    """Those that this rank is in."""
    shards: ShardPlan

    @classmethod
    def of(
        cls,
        config: EngineConfig,
        meeting: Meeting,
        rank: int,
        family: ModelFamily,
        spec: ModelSpec,
        opened: Callable[[Collective], object] = id,
    ) -> RankShare:
        """Joins the groups of a rank. Raises ConfigError for a model that cannot be divided, and
        CollectiveError where a rank does not come.

        opened: called with each group as soon as this rank is in it.
        """
        parts, stages = config.tensor_parallel_size, config.pipeline_parallel_size
        stage, part = divmod(rank, parts)
        name = collective_of_machine()
        groups = [open_collective(name, meeting, part, parts, stage)]
        opened(groups[0])
        line = None
        if stages > 1:
            line = open_collective(name, meeting, stage, stages, stages + part)
            opened(line)
            groups.append(line)
        shards = plan_shards(
            family,
            spec,
            groups[0],
            line,
            config.stage_layers,
            whole_experts=config.enable_expert_parallel,
        )
        return cls(name, tuple(groups), shards)
