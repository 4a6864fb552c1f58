"""The conformance suites: the contract of each kind of plugin, as classes to derive tests from.

A suite is a plain class with methods called ``test_…``. pytest collects classes that derive from it if their
names start with ``Test``; ``turnout plugins check NAME`` runs it without pytest.
``docs/reference/plugins/testing.md`` shows how. Names are imported when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turnout.testing.suites.admission import AdmissionPolicySuite
    from turnout.testing.suites.decoding import DecodingSuite
    from turnout.testing.suites.eviction import EvictionPolicySuite
    from turnout.testing.suites.kv_backend import KVBackendSuite
    from turnout.testing.suites.launcher import LauncherSuite
    from turnout.testing.suites.length_predictor import LengthPredictorSuite
    from turnout.testing.suites.logits_processor import LogitsProcessorSuite
    from turnout.testing.suites.model_family import ModelFamilySuite
    from turnout.testing.suites.observer import ObserverSuite
    from turnout.testing.suites.output_format import OutputFormatSuite
    from turnout.testing.suites.pooling import PoolingSuite
    from turnout.testing.suites.proposer import ProposerSuite
    from turnout.testing.suites.quantizer import QuantizerSuite
    from turnout.testing.suites.router import RouterSuite
    from turnout.testing.suites.scheduling import SchedulingPolicySuite
    from turnout.testing.suites.suite import Suite

__all__ = [
    "AdmissionPolicySuite",
    "DecodingSuite",
    "EvictionPolicySuite",
    "KVBackendSuite",
    "LauncherSuite",
    "LengthPredictorSuite",
    "LogitsProcessorSuite",
    "ModelFamilySuite",
    "ObserverSuite",
    "OutputFormatSuite",
    "PoolingSuite",
    "ProposerSuite",
    "QuantizerSuite",
    "RouterSuite",
    "SchedulingPolicySuite",
    "Suite",
]

_HOMES = {
    "AdmissionPolicySuite": "turnout.testing.suites.admission",
    "DecodingSuite": "turnout.testing.suites.decoding",
    "EvictionPolicySuite": "turnout.testing.suites.eviction",
    "KVBackendSuite": "turnout.testing.suites.kv_backend",
    "LauncherSuite": "turnout.testing.suites.launcher",
    "LengthPredictorSuite": "turnout.testing.suites.length_predictor",
    "LogitsProcessorSuite": "turnout.testing.suites.logits_processor",
    "ModelFamilySuite": "turnout.testing.suites.model_family",
    "ObserverSuite": "turnout.testing.suites.observer",
    "OutputFormatSuite": "turnout.testing.suites.output_format",
    "PoolingSuite": "turnout.testing.suites.pooling",
    "ProposerSuite": "turnout.testing.suites.proposer",
    "QuantizerSuite": "turnout.testing.suites.quantizer",
    "RouterSuite": "turnout.testing.suites.router",
    "SchedulingPolicySuite": "turnout.testing.suites.scheduling",
    "Suite": "turnout.testing.suites.suite",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'turnout.testing' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
