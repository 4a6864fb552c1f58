"""Runs a suite without pytest, and finds the suite for a plugin."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal
from unittest import SkipTest

from turnout.core.errors import ConfigError, did_you_mean
from turnout.core.plugin_faults import plugin_errors
from turnout.core.registry.kinds import OBSERVER_KIND
from turnout.core.registry.registry import Registry
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
from turnout.testing.suites.suite import DoesNotApply, Suite, is_slow

__all__ = ["SLOW", "SUITES", "CheckResult", "run_suite", "set_claim", "suite_for"]

SUITES: dict[str, type[Suite[Any]]] = {
    suite.kind: suite
    for suite in (
        SchedulingPolicySuite,
        KVBackendSuite,
        EvictionPolicySuite,
        QuantizerSuite,
        DecodingSuite,
        ProposerSuite,
        PoolingSuite,
        LengthPredictorSuite,
        AdmissionPolicySuite,
        RouterSuite,
        LauncherSuite,
        LogitsProcessorSuite,
        ModelFamilySuite,
        OutputFormatSuite,
    )
}
"""By kind; observers have `ObserverSuite`."""
SLOW = "it takes a while"
"""Why a slow test was skipped."""

AnySuite = Suite[Any] | ObserverSuite


@dataclass(frozen=True)
class CheckResult:
    """The result of one test of a suite."""

    test: str
    """Its name, as a sentence."""
    state: Literal["ok", "failed", "skipped", "not for it"]
    """``skipped``: the plugin should pass it, and it was not made. ``not for it``: it does not apply."""
    message: str = ""
    error: BaseException | None = None


def suite_for(kind: str, spec: str, registry: Registry) -> AnySuite:
    """A suite for an installed plugin, with the default claims of its kind.

    A plugin's own tests know what it claims beyond these; `set_claim` sets such a claim.
    """
    if kind == OBSERVER_KIND:
        return _observer_suite(spec, registry)
    if kind not in SUITES:
        raise ConfigError(f"there is no suite for the kind {kind!r}; there are: {', '.join(SUITES)}")
    suite = SUITES[kind]()
    suite.spec = spec  # type: ignore[misc]  # of this instance alone
    suite.registry = lambda: registry  # type: ignore[method-assign]
    return suite


def _observer_suite(spec: str, registry: Registry) -> ObserverSuite:
    """For an observer that is chosen by its name, or for the hooks of a plugin."""
    suite = ObserverSuite()
    if spec.partition(":")[0] in registry.names(OBSERVER_KIND):
        suite.spec = spec  # type: ignore[misc]  # of this instance alone
    else:
        suite.plugin = spec.rpartition(".")[0] or spec  # type: ignore[misc]
    suite.registry = lambda: registry  # type: ignore[method-assign]
    return suite


def set_claim(suite: AnySuite, name: str, value: object) -> None:
    """Set one of the suite's claims. Raises ConfigError, listing the claims that the suite has."""
    claims = {n for kind in type(suite).__mro__ for n in vars(kind).get("__annotations__", {})}
    known = sorted(claims - {"kind", "light", "spec", "plugin"})
    if name not in known:
        kind = type(suite).__name__
        raise ConfigError(
            f"{kind} has no claim {name!r}; it has {', '.join(known)}{did_you_mean(name, known)}"
        )
    setattr(suite, name, value)


def run_suite(suite: AnySuite, *, slow: bool = False) -> Iterator[CheckResult]:
    """Run the suite's tests in source order, those for every kind first. slow: include the slow ones."""
    for name in _tests(type(suite)):
        sentence = name.removeprefix("test_").replace("_", " ")
        if is_slow(getattr(suite, name)) and not slow:
            yield CheckResult(sentence, "skipped", SLOW)
            continue
        try:
            getattr(suite, name)()
        except DoesNotApply as why:
            yield CheckResult(sentence, "not for it", str(why))
        except SkipTest as why:
            yield CheckResult(sentence, "skipped", str(why))
        except plugin_errors() as error:  # a plugin may call `sys.exit`
            yield CheckResult(sentence, "failed", str(error) or type(error).__name__, error)
        else:
            yield CheckResult(sentence, "ok")


def _tests(suite: type) -> list[str]:
    names: dict[str, None] = {}
    for owner in reversed(suite.__mro__):
        names |= dict.fromkeys(name for name in vars(owner) if name.startswith("test_"))
    return [name for name in names if inspect.isfunction(getattr(suite, name))]
