"""Turnout: a serving framework for large language models in which every policy is a plugin.

Names are imported when first used, so that ``import turnout`` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turnout.config import EngineConfig, ServerConfig
    from turnout.core.errors import TurnoutError
    from turnout.core.interfaces.admission import AdmissionPolicy, Load, Refusal
    from turnout.core.interfaces.decoding import Decoding
    from turnout.core.interfaces.eviction import CachedBlock, EvictionPolicy
    from turnout.core.interfaces.kv import KVBackend
    from turnout.core.interfaces.launcher import EngineOrder, LaunchedEngine, Launcher
    from turnout.core.interfaces.logits_processor import LogitsProcessor, Row
    from turnout.core.interfaces.models import ModelFamily
    from turnout.core.interfaces.observers import Observer
    from turnout.core.interfaces.pooling import Pooling
    from turnout.core.interfaces.quantization import Quantizer
    from turnout.core.interfaces.router import Replica, Routable, Router
    from turnout.core.interfaces.scheduling import Drop, LengthPredictor, SchedulingPolicy, Share
    from turnout.core.registry.hookspecs import hookimpl
    from turnout.core.types.placement import Placement
    from turnout.core.types.request import RequestView
    from turnout.core.types.sampling_params import SamplingParams
    from turnout.core.types.structured_outputs import StructuredOutputs
    from turnout.core.types.views import View
    from turnout.llm import LLM, CompletionOutput, Logprob, RequestOutput, ToolCall

__all__ = [
    "LLM",
    "AdmissionPolicy",
    "CachedBlock",
    "CompletionOutput",
    "Decoding",
    "Drop",
    "EngineConfig",
    "EngineOrder",
    "EvictionPolicy",
    "KVBackend",
    "LaunchedEngine",
    "Launcher",
    "LengthPredictor",
    "Load",
    "LogitsProcessor",
    "Logprob",
    "ModelFamily",
    "Observer",
    "Placement",
    "Pooling",
    "Quantizer",
    "Refusal",
    "Replica",
    "RequestOutput",
    "RequestView",
    "Routable",
    "Router",
    "Row",
    "SamplingParams",
    "SchedulingPolicy",
    "ServerConfig",
    "Share",
    "StructuredOutputs",
    "ToolCall",
    "TurnoutError",
    "View",
    "hookimpl",
]

_HOMES = {
    "turnout.config": ("EngineConfig", "ServerConfig"),
    "turnout.core.errors": ("TurnoutError",),
    "turnout.core.interfaces": (
        "AdmissionPolicy",
        "CachedBlock",
        "Decoding",
        "Drop",
        "EngineOrder",
        "EvictionPolicy",
        "KVBackend",
        "LaunchedEngine",
        "Launcher",
        "LengthPredictor",
        "Load",
        "LogitsProcessor",
        "ModelFamily",
        "Observer",
        "Pooling",
        "Quantizer",
        "Refusal",
        "Replica",
        "Routable",
        "Router",
        "Row",
        "SchedulingPolicy",
        "Share",
    ),
    "turnout.core.registry.hookspecs": ("hookimpl",),
    "turnout.core.types.placement": ("Placement",),
    "turnout.core.types.request": ("RequestView",),
    "turnout.core.types.sampling_params": ("SamplingParams",),
    "turnout.core.types.structured_outputs": ("StructuredOutputs",),
    "turnout.core.types.views": ("View",),
    "turnout.llm": ("LLM", "CompletionOutput", "Logprob", "RequestOutput", "ToolCall"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'turnout' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOME_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
