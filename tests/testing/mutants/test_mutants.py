"""The suites find what they are for: a mistake planted in a built-in plugin makes its public suite fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import admission_mutants
import kv_mutants
import launcher_mutants
import memory_mutants
import pooling_mutants
import pytest
import router_mutants
import scheduler_mutants
import tensor_mutants

from turnout.models.random.shapes import Shape, config_of
from turnout.testing import (
    AdmissionPolicySuite,
    DecodingSuite,
    EvictionPolicySuite,
    KVBackendSuite,
    LauncherSuite,
    LengthPredictorSuite,
    LogitsProcessorSuite,
    ModelFamilySuite,
    PoolingSuite,
    ProposerSuite,
    QuantizerSuite,
    RouterSuite,
    SchedulingPolicySuite,
    Suite,
)
from turnout.testing.suite_runner import run_suite

CONFIG = config_of(Shape(32, 2, 4, 2, 48, 64, max_positions=128, theta=10_000.0, tied=False), "qwen2")
FAMILY: dict[str, Any] = {"config": CONFIG, "refused": ({"hidden_act": "relu"},)}

LONG = {
    *("LooksAtRunners", "OrdersByHash", "ignored_salt", "half_done_refusal", "window_ignored"),
    *("first_layer_for_all", "never forgets", "Searches"),
}
"""The suite takes seconds to find them; others of their kinds are found at once."""


def prepared(suite: type[Suite[Any]], make: Callable[[], Any], **claims: Any) -> Suite[Any]:
    return type("Examined", (suite,), {"make": staticmethod(make), **claims})()  # type: ignore[no-any-return]


def mutants() -> list[Any]:
    found: list[tuple[str, type[Suite[Any]], Callable[[], Any], dict[str, Any]]] = []
    for policy in scheduler_mutants.MUTANTS:
        claims = {"bound": 60.0} if policy.__name__ == "StarvesTheLong" else {}
        claims |= {"fairness": 40.0} if policy.__name__ == "UnfairCounter" else {}
        found.append((policy.__name__, SchedulingPolicySuite, policy, claims))
    found += [(name, KVBackendSuite, make, {}) for name, make in kv_mutants.MUTANTS.items()]
    found += [
        (name, DecodingSuite, make, {"same_as": same_as})
        for name, (make, same_as) in tensor_mutants.DECODINGS.items()
    ]
    for suite, kinds, claims in (
        # What is right takes less than one, what searches some 40: the limit, or less on a faster machine.
        (EvictionPolicySuite, memory_mutants.EVICTIONS, {"microseconds": 10.0}),
        (LengthPredictorSuite, memory_mutants.PREDICTORS, {}),
        (AdmissionPolicySuite, admission_mutants.ADMISSIONS, {}),
        (RouterSuite, router_mutants.ROUTERS, {}),
        (LauncherSuite, launcher_mutants.LAUNCHERS, {"seconds": 1.0}),
        (PoolingSuite, pooling_mutants.POOLINGS, {}),
        (ProposerSuite, tensor_mutants.PROPOSERS, {}),
        (LogitsProcessorSuite, tensor_mutants.PROCESSORS, {}),
        (QuantizerSuite, tensor_mutants.QUANTIZERS, {}),
        (QuantizerSuite, tensor_mutants.EXPORTING_QUANTIZERS, {"spec": "int8"}),
        (ModelFamilySuite, tensor_mutants.FAMILIES, FAMILY),
    ):
        found += [(kind.__name__, suite, kind, claims) for kind in kinds]
    return [
        pytest.param(
            suite, make, claims, id=name, marks=[pytest.mark.slow] if number % 2 == 0 or name in LONG else []
        )
        for number, (name, suite, make, claims) in enumerate(found)
    ]


@pytest.mark.parametrize(("suite", "make", "claims"), mutants())
def test_a_mistake_is_caught(
    suite: type[Suite[Any]], make: Callable[[], Any], claims: dict[str, Any]
) -> None:
    failed = next(
        (each for each in run_suite(prepared(suite, make, **claims)) if each.state == "failed"), None
    )
    assert failed is not None, "the suite finds nothing wrong"
    assert "torch" not in failed.test, "found by chance: this file imports torch"
    assert failed.message, f"{failed.test!r} failed without a word"
    print(f"{failed.test}: {failed.message[:200]}")


def test_there_are_many_mistakes() -> None:
    assert len(mutants()) >= 15


@pytest.mark.parametrize("quantizer", [tensor_mutants.RIGHT_QUANTIZER])
def test_what_the_broken_quantizers_derive_from_is_right(quantizer: Callable[[], Any]) -> None:
    """Turnout's own `none` converts nothing, so a quantizer that does is written in the tests."""
    findings = list(run_suite(prepared(QuantizerSuite, quantizer)))
    assert not [finding for finding in findings if finding.state == "failed"]


def test_what_the_broken_families_derive_from_is_right() -> None:
    """It did not refuse what its suite was told that it refuses, so every family was found."""
    findings = list(run_suite(prepared(ModelFamilySuite, tensor_mutants.Qwen2, **FAMILY)))
    assert not [finding for finding in findings if finding.state == "failed"]
