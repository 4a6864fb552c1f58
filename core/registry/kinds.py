"""The kinds of plugins; most are chosen by a field of `EngineConfig`."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.core.errors import ConfigError, did_you_mean
from turnout.core.interfaces import OutputFormat
from turnout.core.interfaces.admission import AdmissionPolicy
from turnout.core.interfaces.decoding import Decoding
from turnout.core.interfaces.eviction import EvictionPolicy
from turnout.core.interfaces.kv import KVBackend
from turnout.core.interfaces.launcher import Launcher
from turnout.core.interfaces.logits_processor import LogitsProcessor
from turnout.core.interfaces.models import ModelFamily
from turnout.core.interfaces.observers import Observer
from turnout.core.interfaces.pooling import Pooling
from turnout.core.interfaces.proposer import Proposer
from turnout.core.interfaces.quantization import Quantizer
from turnout.core.interfaces.router import Router
from turnout.core.interfaces.scheduling import LengthPredictor, SchedulingPolicy

__all__ = ["KINDS", "OBSERVER_HOOKS", "OBSERVER_KIND", "POLICY_KINDS", "Kind", "kind_named"]


@dataclass(frozen=True)
class Kind:
    """A kind of plugin: its name, the hook that offers it, the base class that it must have."""

    name: str
    hook: str
    base: type


KINDS = {
    kind.name: kind
    for kind in (
        Kind("scheduler", "register_schedulers", SchedulingPolicy),
        Kind("kv", "register_kv_backends", KVBackend),
        Kind("kv_eviction", "register_evictions", EvictionPolicy),
        Kind("quantization", "register_quantizers", Quantizer),
        Kind("decoding", "register_decodings", Decoding),
        Kind("proposer", "register_proposers", Proposer),
        Kind("pooling", "register_poolings", Pooling),
        Kind("length_predictor", "register_length_predictors", LengthPredictor),
        Kind("admission", "register_admissions", AdmissionPolicy),
        Kind("router", "register_routers", Router),
        Kind("launcher", "register_launchers", Launcher),
        Kind("observer", "register_observers", Observer),
        Kind("logits_processor", "register_logits_processors", LogitsProcessor),
        Kind("model", "register_models", ModelFamily),
        Kind("format", "register_formats", OutputFormat),
    )
}

OBSERVER_KIND = "observer"
"""Where hooks that watch are listed too; they are not chosen, all of them are called."""
OBSERVER_HOOKS = (
    "step_finished",
    "request_arrived",
    "request_preempted",
    "request_finished",
    "engine_closed",
)

_CHOSEN_OTHERWISE = ("proposer", "router", "launcher", "observer", "logits_processor", "model")
POLICY_KINDS = tuple(name for name in KINDS if name not in _CHOSEN_OTHERWISE)
"""The kinds chosen by the config field of the same name.

A model's family follows from its checkpoint; logits processors are all active; there may be several
observers; a proposer is an option of the decoding strategy that asks it; a router and a launcher stand in
front of engines, not in one.
"""


def kind_named(name: str) -> Kind:
    if name not in KINDS:
        known = f"{', '.join(KINDS)}{did_you_mean(name, KINDS)}"
        raise ConfigError(f"no kind of plugin is called {name!r}; known: {known}")
    return KINDS[name]
