"""The chosen plugins, built from the configuration."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from turnout.config import EngineConfig
from turnout.core.engine.logits_processing import LogitsProcessors
from turnout.core.errors import ConfigError
from turnout.core.interfaces.decoding import Decoding
from turnout.core.interfaces.eviction import EvictionPolicy
from turnout.core.interfaces.kv import KVBackend
from turnout.core.interfaces.scheduling import LengthPredictor, SchedulingPolicy
from turnout.core.registry.kinds import POLICY_KINDS
from turnout.core.registry.registry import Registry
from turnout.core.registry.spec import PluginSpec

logger = logging.getLogger(__name__)

__all__ = [
    "SPECULATIVE",
    "HostPolicies",
    "Policies",
    "build_eviction",
    "build_host_policies",
    "build_kv",
    "build_policies",
    "check_policies",
    "choices",
]

SPECULATIVE = "speculative"
"""The strategy that ``spec_draft`` and its like are options of."""


@dataclass(frozen=True)
class HostPolicies:
    """Those that deal in integers: all that a simulation needs, and nothing that imports torch."""

    scheduler: SchedulingPolicy
    predictor: LengthPredictor
    kv: KVBackend
    eviction: EvictionPolicy


@dataclass(frozen=True)
class Policies(HostPolicies):
    """One object for each kind, but all decoding strategies, the default one first, and all processors.

    Without the quantizer, which depends on how the checkpoint is stored.
    """

    decodings: tuple[Decoding, ...]
    """In the order in which they are asked who serves a request."""
    defaults: Mapping[str, Any]
    """Sampling parameters that the decoding of the configuration gives to requests that set none."""
    processors: LogitsProcessors


class Choice(NamedTuple):
    """A plugin that a configuration asks for: its spec, and options from flags of their own."""

    spec: str
    given: Mapping[str, object]

    def __str__(self) -> str:
        """With all options in the spec."""
        parsed = PluginSpec.parse(self.spec)
        given = {name: _as_text(value) for name, value in self.given.items() if value is not None}
        return str(PluginSpec(parsed.name, {**parsed.options, **given}))


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def choices(config: EngineConfig, kind: str) -> list[Choice]:
    """What `config` asks for of a kind; several only of decoding. Raises ConfigError."""
    spec: str | None = getattr(config, kind)
    if spec is None:  # left to the backend
        return []
    if kind == "kv":
        return [Choice(spec, {"block_size": config.block_size})]
    if kind == "decoding":
        return _decoding_choices(config)
    return [Choice(spec, {})]


def _decoding_choices(config: EngineConfig) -> list[Choice]:
    """The configured strategy last; before it the one that speculates, where the flags ask for that."""
    flags = {"draft": config.spec_draft, "ngram": config.spec_ngram or None, "k": config.spec_tokens}
    if PluginSpec.parse(config.decoding).name == SPECULATIVE:
        return [Choice(config.decoding, flags)]
    if config.spec_draft or config.spec_ngram:
        return [Choice(SPECULATIVE, flags), Choice(config.decoding, {})]
    if config.spec_tokens is not None:
        raise ConfigError(
            f"spec_tokens={config.spec_tokens} says how far to draft, but nothing drafts; give spec_draft or "
            "spec_ngram too"
        )
    return [Choice(config.decoding, {})]


def check_policies(registry: Registry, config: EngineConfig) -> None:
    """Find misspelt policies and options before anything heavy is loaded."""
    for kind in POLICY_KINDS:
        for spec, given in choices(config, kind):
            registry.create(kind, spec, **given)


def build_policies(registry: Registry, config: EngineConfig) -> Policies:
    """Raises ConfigError or PluginError, naming plugin and option."""
    decodings = [registry.create("decoding", spec, **given) for spec, given in choices(config, "decoding")]
    return Policies(
        **vars(build_host_policies(registry, config)),
        decodings=(*decodings, *_other_decodings(registry, config)),
        defaults=decodings[-1].defaults,
        processors=LogitsProcessors(registry.logits_processors()),
    )


def build_host_policies(registry: Registry, config: EngineConfig) -> HostPolicies:
    """Raises ConfigError or PluginError, naming plugin and option."""
    kv = build_kv(registry, config)
    return HostPolicies(
        scheduler=registry.create("scheduler", config.scheduler),
        predictor=registry.create("length_predictor", config.length_predictor),
        kv=kv,
        eviction=build_eviction(registry, config, kv),
    )


def build_kv(registry: Registry, config: EngineConfig) -> KVBackend:
    """Raises ConfigError or PluginError, naming plugin and option."""
    ((spec, given),) = choices(config, "kv")
    return registry.create("kv", spec, **given)


def build_eviction(registry: Registry, config: EngineConfig, kv: KVBackend) -> EvictionPolicy:
    """One for each KV cache: it remembers that cache's blocks."""
    if config.kv_eviction is not None and not kv.evicts:
        raise ConfigError(
            f"kv_eviction={config.kv_eviction!r} has nothing to choose from: kv backend {config.kv!r} "
            "keeps no memory that nobody holds; leave it out or choose another backend, such as paged"
        )
    return registry.create("kv_eviction", config.kv_eviction or "lru")


def _other_decodings(registry: Registry, config: EngineConfig) -> Iterator[Decoding]:
    """Every other one as it comes, but for those that wrap others: a request may ask for any."""
    asked = {PluginSpec.parse(choice.spec).name for choice in choices(config, "decoding")}
    for name in registry.names("decoding"):
        if name not in asked:
            try:
                decoding = registry.create("decoding", name)
            except ConfigError as error:  # nobody asked for it by name
                logger.warning("decoding %s is not on offer: %s", name, error)
                continue
            if not decoding.wraps:
                yield decoding
