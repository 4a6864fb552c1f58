"""A live A/B test: its two arms, and the checks of what they must have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from turnout.config import EngineConfig
from turnout.core.errors import ConfigError
from turnout.core.interfaces.trial import Trial
from turnout.runner.memory.host_memory import free_host_memory
from turnout.server.fleet.arms import ServedArm
from turnout.server.fleet.replica_memory import gib
from turnout.text.vocabulary import vocabulary_difference

__all__ = ["ABTest", "check_memory", "check_ready", "check_vocabularies"]


@dataclass(frozen=True)
class ABTest:
    """Two arms: the server's own configuration, called the base, and another."""

    base: str
    """The name of the server's own arm."""
    base_config: EngineConfig
    """The server's own configuration, with its share of the memory."""
    name: str
    """The name of the other arm."""
    config: EngineConfig
    changes: Mapping[str, str]
    """What the other arm changes of the base, by field."""
    share: float
    """Share of the sessions that the other arm gets, from 0 to 1."""
    trial: Trial


def check_vocabularies(test: ABTest, base: Path, other: Path) -> None:
    """Raise ConfigError unless the models in folders `base` and `other` share a vocabulary.

    Clients may send token ids, which must mean the same in both arms.
    """
    difference = vocabulary_difference(base, other)
    if difference is not None:
        raise ConfigError(
            f"arm {test.name!r}: model {test.config.model!r} has another vocabulary than "
            f"{test.base_config.model!r} ({difference}); the arms of a live test must share one, since "
            "clients may send token ids: compare such models with turnout compare"
        )


def check_ready(arms: Sequence[ServedArm]) -> None:
    """Raise ConfigError unless the arms' context lengths are equal: no arm may refuse what another serves."""
    first, *others = arms
    longest = first.client.ready.max_model_len
    for arm in others:
        if arm.client.ready.max_model_len != longest:
            raise ConfigError(
                f"arm {arm.name!r}: its context is {arm.client.ready.max_model_len:,} tokens, and that of "
                f"{first.name!r} {longest:,}; give both the same --max-model-len, so that no arm "
                "refuses what the other serves"
            )


def check_memory(arms: Sequence[ServedArm]) -> str:
    """A line with the KV pools' sizes; raises ConfigError where they do not fit into host memory together.

    To be called when all engines are ready: their weights are in memory then, and their pools are not yet.
    """
    asked = {arm.name: arm.client.ready.host_memory for arm in arms}
    total, free = sum(asked.values()), free_host_memory()
    sums = " + ".join(f"{name} {gib(size)}" for name, size in asked.items())
    if total > free:
        raise ConfigError(
            f"the arms' KV pools ask for {sums} = {gib(total)} of host memory, but {gib(free)} is free "
            "with the weights loaded; ask for less with --kv-memory, for an arm NAME:kv-memory=SIZE"
        )
    return f"KV pools in host memory: {sums} = {gib(total)}, of {gib(free)} free"
