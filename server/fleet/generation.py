"""What the engines of a fleet are started with: one configuration for all, until a rollout brings another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from turnout.config import EngineConfig
from turnout.core.types.messages import Ready
from turnout.server.engine.admin_journal import AdminJournal

__all__ = ["Generation", "Tokens", "tokens_of"]

KERNELS_FOLLOW = frozenset(
    {"cpu_kernels", "model", "revision", "model_impl", "dtype", "quantization", "device"}
)
"""What decides which kernels are chosen for a CPU."""
Tokens = tuple[str, ...]
"""The same for engines between which a request may move in mid-stream."""


@dataclass(eq=False)
class Generation:
    """One configuration, and what was told to its engines since."""

    given: EngineConfig
    """As it is for the whole fleet."""
    config: EngineConfig
    """One engine's part of it, with what the first engine has decided for the others."""
    journal: AdminJournal
    """The policies set and prefixes pinned since."""
    changes: dict[str, object] = field(default_factory=dict)
    """What a rollout changed of the one before."""
    all_changes: dict[str, object] = field(default_factory=dict)
    """What rollouts changed of the first one."""

    @classmethod
    def first(cls, config: EngineConfig, replicas: int, journal: AdminJournal) -> Generation:
        return cls(config, _shared(config, replicas), journal)

    def follow(self, ready: Ready) -> None:
        """Give the engines to come the kernels of one that is ready: so all give the same tokens."""
        if ready.cpu_kernels:
            self.config = self.config.model_copy(update={"cpu_kernels": ready.cpu_kernels})

    def next(self, given: EngineConfig, changes: Mapping[str, object], replicas: int) -> Generation:
        """The generation that a rollout brings."""
        config = _shared(given, replicas)
        if not KERNELS_FOLLOW & changes.keys():
            config = config.model_copy(update={"cpu_kernels": self.config.cpu_kernels})
        journal = self.journal.copy(scheduler="scheduler" not in changes)
        return Generation(given, config, journal, dict(changes), {**self.all_changes, **changes})


def tokens_of(config: EngineConfig, ready: Ready) -> Tokens:
    """What decides the tokens of an engine's requests: drafts change those of some requests."""
    drafts = config.spec_draft, config.spec_ngram, config.spec_tokens
    return ready.fingerprint, *map(str, drafts)


def _shared(config: EngineConfig, replicas: int) -> EngineConfig:
    """The configuration of one of so many engines, which share memory and cores."""
    if replicas <= 1:
        return config
    update: dict[str, object] = {"memory_share": config.memory_share / replicas}
    if config.cpu_share is not None:
        update["cpu_share"] = config.cpu_share / replicas
    elif "cpu_engines" not in config.model_fields_set:
        update["cpu_engines"] = replicas
    return config.model_copy(update=update)
