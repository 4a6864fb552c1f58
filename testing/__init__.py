"""The conformance kit: what a plugin of each kind must keep to, as suites to derive tests from.

A suite is a plain class with methods called ``test_…``; pytest collects what is derived from it under a
name that starts with ``Test``, and ``turnout plugins check NAME`` runs it without pytest.
``docs/plugins/testing.md`` shows how. Names are imported when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turnout.testing.decoding import DecodingSuite
    from turnout.testing.eviction import EvictionPolicySuite
    from turnout.testing.kv_backend import KVBackendSuite
    from turnout.testing.length_predictor import LengthPredictorSuite
    from turnout.testing.logits_processor import LogitsProcessorSuite
    from turnout.testing.model_family import ModelFamilySuite
    from turnout.testing.observer import ObserverSuite
    from turnout.testing.proposer import ProposerSuite
    from turnout.testing.quantizer import QuantizerSuite
    from turnout.testing.router import RouterSuite
    from turnout.testing.scheduling import SchedulingPolicySuite
    from turnout.testing.suite import Suite

__all__ = [
    "DecodingSuite",
    "EvictionPolicySuite",
    "KVBackendSuite",
    "LengthPredictorSuite",
    "LogitsProcessorSuite",
    "ModelFamilySuite",
    "ObserverSuite",
    "ProposerSuite",
    "QuantizerSuite",
    "RouterSuite",
    "SchedulingPolicySuite",
    "Suite",
]

_HOMES = {
    "DecodingSuite": "turnout.testing.decoding",
    "EvictionPolicySuite": "turnout.testing.eviction",
    "KVBackendSuite": "turnout.testing.kv_backend",
    "LengthPredictorSuite": "turnout.testing.length_predictor",
    "LogitsProcessorSuite": "turnout.testing.logits_processor",
    "ModelFamilySuite": "turnout.testing.model_family",
    "ObserverSuite": "turnout.testing.observer",
    "ProposerSuite": "turnout.testing.proposer",
    "QuantizerSuite": "turnout.testing.quantizer",
    "RouterSuite": "turnout.testing.router",
    "SchedulingPolicySuite": "turnout.testing.scheduling",
    "Suite": "turnout.testing.suite",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'turnout.testing' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
