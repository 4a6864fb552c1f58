"""The chosen plugins, built from the configuration."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from turnout.config import EngineConfig
from turnout.core.engine.engine import Engine
from turnout.core.engine.logits_processing import LogitsProcessors
from turnout.core.engine.observers import Observers
from turnout.core.errors import ConfigError, as_plugin_errors
from turnout.core.interfaces.admission import AdmissionPolicy
from turnout.core.interfaces.decoding import Decoding
from turnout.core.interfaces.kv import KVBackend, KVCache
from turnout.core.interfaces.scheduling import LengthPredictor, SchedulingPolicy
from turnout.core.plugin_faults import name_plugin, title_of
from turnout.core.registry.registry import Registry
from turnout.core.registry.spec import PluginSpec
from turnout.core.scheduling.guarded_eviction import GuardedEviction
from turnout.core.scheduling.preemption import Auto, Preemption, Recompute, Swap, SwapCosts
from turnout.core.scheduling.scheduler import Capacity, Scheduler
from turnout.core.types.model_spec import ModelSpec
from turnout.plugins.defaults import KV, KV_EVICTION
from turnout.runner.choices import policy_choices

logger = logging.getLogger(__name__)

__all__ = [
    "HostPolicies",
    "Policies",
    "build_eviction",
    "build_host_policies",
    "build_kv",
    "build_observers",
    "build_policies",
    "build_preemption",
    "build_scheduler",
    "describe_kv",
    "kv_for_model",
    "serving",
    "show_figures",
]

SchedulerT = TypeVar("SchedulerT", bound=Scheduler)
PoliciesT = TypeVar("PoliciesT", bound="HostPolicies")


@dataclass(frozen=True)
class HostPolicies:
    """Those that deal in integers: all that a simulation needs, and nothing that imports torch."""

    scheduler: SchedulingPolicy
    predictor: LengthPredictor
    admission: AdmissionPolicy
    kv: KVBackend
    eviction: GuardedEviction


@dataclass(frozen=True)
class Policies(HostPolicies):
    """One object for each kind, but all decoding strategies, the default one first, and all processors.

    Without the quantizer, which depends on how the checkpoint is stored.
    """

    decodings: tuple[Decoding, ...]
    """In the order in which they are asked whether they serve a request."""
    decodings_by_name: Mapping[str, Decoding]
    """Those, and others that a request gets only if it asks for them by name."""
    named_decodings: int
    """How many of them, from the first on, the configuration names."""
    defaults: Mapping[str, Any]
    """Sampling parameters that the decoding of the configuration gives to requests that set none."""
    processors: LogitsProcessors


def build_policies(registry: Registry, config: EngineConfig) -> Policies:
    """Builds all policies that the configuration names.

    Raises ConfigError or PluginError, naming plugin and option.
    """
    asked = policy_choices(registry, config, "decoding")
    decodings = {
        PluginSpec.parse(spec).name: registry.create("decoding", spec, **given) for spec, given in asked
    }
    others = dict(_other_decodings(registry, decodings))
    offered = {name: each for name, each in others.items() if not each.wraps}
    # What wraps another strategy and drafts would take memory for drafts, though no request may ask for it.
    asked_for = {name: each for name, each in others.items() if each.wraps and each.rows == 1}
    return Policies(
        **vars(build_host_policies(registry, config)),
        decodings=(*decodings.values(), *offered.values()),
        decodings_by_name={**decodings, **offered, **asked_for},
        named_decodings=len(decodings),
        defaults=[*decodings.values()][-1].defaults,
        processors=LogitsProcessors(registry.logits_processors(config.logits_processor)),
    )


def build_host_policies(registry: Registry, config: EngineConfig) -> HostPolicies:
    """Builds the policies that plan steps, from specs such as ``fcfs`` or ``sjf:aging=50``.

    Raises ConfigError or PluginError, naming plugin and option.
    """
    kv = build_kv(registry, config)
    return HostPolicies(
        scheduler=registry.create("scheduler", config.scheduler),
        predictor=registry.create("length_predictor", config.length_predictor),
        admission=registry.create("admission", config.admission),
        kv=kv,
        eviction=build_eviction(registry, config, kv),
    )


def build_scheduler(
    config: EngineConfig,
    policies: HostPolicies,
    kv: KVCache,
    preemption: Preemption,
    capacity: Capacity,
    scheduler: type[SchedulerT],
) -> SchedulerT:
    """Builds `scheduler`, `Scheduler` or a subclass of it."""
    return scheduler(
        policies.scheduler,
        kv,
        capacity,
        policies.predictor,
        preemption=preemption,
        strict=config.strict_plugins,
        grows_at=policies.kv.grows_at,
    )


def build_kv(registry: Registry, config: EngineConfig) -> KVBackend:
    """Raises ConfigError or PluginError, naming plugin and option."""
    *_, (spec, given) = policy_choices(registry, config, "kv")
    return registry.create("kv", spec, **given)


def describe_kv(registry: Registry, config: EngineConfig) -> str:
    """The KV backend of the configuration and its options, those of flags too, as `NAME:option=value,…`."""
    *_, choice = policy_choices(registry, config, "kv")
    return str(PluginSpec.parse(str(choice)))


def serving(policies: PoliciesT, spec: ModelSpec) -> PoliciesT:
    """Returns the policies as they serve a model, whose layers the KV backend looks at."""
    return replace(policies, kv=kv_for_model(policies.kv, spec))


def kv_for_model(kv: KVBackend, spec: ModelSpec) -> KVBackend:
    title = title_of(kv, "kv")
    with as_plugin_errors(f"{title}: for_model"):
        made = kv.for_model(spec)
    name_plugin(made, title)
    return made


def build_observers(registry: Registry, config: EngineConfig) -> Observers:
    """All hooks that observe, and the observers that the configuration names."""
    observers = Observers(**registry.observers())
    for spec in config.observer:
        observers.choose(registry.create("observer", spec))
    return observers


def show_figures(engine: Engine, policies: HostPolicies, cache: KVCache) -> None:
    """Has the engine show the figures of the plugins that work inside others."""
    kv, eviction = policies.kv, policies.eviction.policy
    engine.show_figures("kv", kv, lambda: kv.figures(cache))
    if kv.evicts:
        engine.show_figures("kv_eviction", eviction, eviction.figures)


def build_eviction(registry: Registry, config: EngineConfig, kv: KVBackend) -> GuardedEviction:
    """One for each KV cache, guarded: it remembers that cache's blocks."""
    if config.kv_eviction is not None and not kv.evicts:
        raise ConfigError(
            f"kv_eviction={config.kv_eviction!r} has nothing to choose from: kv backend {config.kv!r} "
            f"keeps no memory after a request ends; leave it out or choose another backend, such as {KV}"
        )
    policy = registry.create("kv_eviction", config.kv_eviction or KV_EVICTION)
    return GuardedEviction(policy, strict=config.strict_plugins)


def build_preemption(config: EngineConfig, swap: int, costs: Callable[[], SwapCosts]) -> Preemption:
    """Builds what decides how a request is preempted.

    swap: positions that the backend made of the swap memory. costs: called only if they decide. Raises
    ConfigError for swap memory that the backend cannot use.
    """
    if not swap and (config.swap_memory or config.preemption == "swap"):
        raise ConfigError(
            f"kv backend {config.kv!r} swaps nothing out to host memory; "
            "leave --swap-memory and --preemption out"
        )
    if not swap or config.preemption == "recompute":
        return Recompute()
    return Swap() if config.preemption == "swap" else Auto(costs())


def _other_decodings(registry: Registry, chosen: Container[str]) -> Iterator[tuple[str, Decoding]]:
    """Every other one as it comes, by name."""
    for name in registry.names("decoding"):
        if name not in chosen:
            try:
                yield name, registry.create("decoding", name)
            except ConfigError as error:  # no configuration named it
                logger.warning("decoding %s is not on offer: %s", name, error)
