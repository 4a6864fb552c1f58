"""The axes along which Turnout can be extended; most are a field of `EngineConfig`."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.core.errors import ConfigError, nearest
from turnout.core.interfaces.decoding import Decoding
from turnout.core.interfaces.eviction import EvictionPolicy
from turnout.core.interfaces.kv import KVBackend
from turnout.core.interfaces.logits_processor import LogitsProcessor
from turnout.core.interfaces.models import ModelFamily
from turnout.core.interfaces.proposer import Proposer
from turnout.core.interfaces.quantization import Quantizer
from turnout.core.interfaces.router import Router
from turnout.core.interfaces.scheduling import LengthPredictor, SchedulingPolicy

__all__ = ["AXES", "OBSERVER_AXIS", "OBSERVER_HOOKS", "POLICY_AXES", "Axis", "axis_named"]


@dataclass(frozen=True)
class Axis:
    """A kind of plugin: how it is called, which hook offers it, what it must be."""

    name: str
    hook: str
    base: type


AXES = {
    axis.name: axis
    for axis in (
        Axis("scheduler", "register_schedulers", SchedulingPolicy),
        Axis("kv", "register_kv_backends", KVBackend),
        Axis("kv_eviction", "register_evictions", EvictionPolicy),
        Axis("quantization", "register_quantizers", Quantizer),
        Axis("decoding", "register_decodings", Decoding),
        Axis("proposer", "register_proposers", Proposer),
        Axis("length_predictor", "register_length_predictors", LengthPredictor),
        Axis("router", "register_routers", Router),
        Axis("logits_processor", "register_logits_processors", LogitsProcessor),
        Axis("model", "register_models", ModelFamily),
    )
}

OBSERVER_AXIS = "observer"
"""Where hooks that watch are listed; they are not chosen, all of them are called."""
OBSERVER_HOOKS = ("step_finished", "request_finished")

POLICY_AXES = tuple(name for name in AXES if name not in ("proposer", "router", "logits_processor", "model"))
"""Those chosen by a config field of the same name.

A model's family follows from its checkpoint; logits processors are all active; a proposer is an option of the
strategy that asks it; a router stands in front of engines, not in one.
"""


def axis_named(name: str) -> Axis:
    if name not in AXES:
        raise ConfigError(f"no axis is called {name!r}; known: {', '.join(AXES)}{nearest(name, AXES)}")
    return AXES[name]
