"""A fault of a plugin costs what `core/fault_table.py` says, and nothing of anybody else's.

Each method of each kind raises, at its first call, at its third, or from the first on: an error, an exit, or
an error that cannot be printed. An engine that dies is replaced, as the server does it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from faulty_plugins import OTHERS, OWN, PARTS, Fault, Outcome, Own, build, requests, serve, title

from turnout.core.fault_table import FAULTS, Ends, fault_of
from turnout.core.registry.kinds import KINDS, OBSERVER_HOOKS


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


class PanicException(BaseException):  # as pyo3 calls that of each extension
    """An extension in Rust reached what it takes to be impossible."""


class Stop(BaseException):
    """What a library ends its own loop with."""


ERRORS: dict[str, Callable[[], BaseException]] = {
    "error": lambda: RuntimeError("oops"),
    "exit": lambda: SystemExit(3),
    "unprintable": Unprintable,
    "panic": lambda: PanicException("called `Option::unwrap()` on a `None` value"),
    "stop": lambda: Stop("over"),
}
MOMENTS = ("first", "third", "always")
NOT_ASKED = ("move", "bind", "__call__", "snapshot", "prefixes", "pin", "unpin", "pinned", "warm_up")
"""Methods that the toy's device, or an engine without a server, does not call."""
ONCE = ("counters", "engine_closed")
"""Methods that are called once at the end."""
ELSEWHERE = ("launcher", "quantization", "model", "pooling", "router")
CELLS = [
    (fault.kind, method)
    for fault in FAULTS
    for method in fault.methods
    if fault.in_service and fault.kind not in ELSEWHERE and method not in NOT_ASKED
    if (fault.kind, method) != ("kv", "figures")  # the backend's, and the toy has only the cache
]
CASES = [
    pytest.param(
        *(kind, method, moment, error),
        id=f"{kind}.{method}-{moment}-{error}",
        marks=() if (row + column + number) % len(ERRORS) == 0 else pytest.mark.slow,
    )
    for row, (kind, method) in enumerate(CELLS)
    for column, moment in enumerate(MOMENTS)
    for number, error in enumerate(ERRORS)
    # From the first on, no engine would ever serve, and the server gives up.
    if not (moment == "always" and fault_of(kind, method).replaces_engine)
    if not (moment == "third" and method in ONCE)
]
"""One error for each method and moment, in turn; the others are slow."""


@cache
def unharmed(kind: str, method: str) -> Outcome:
    return serve(lambda: build(kind, "Chosen." if method.startswith("Chosen.") else "", None), requests(kind))


@pytest.mark.parametrize(("kind", "method", "moment", "error"), CASES)
def test_a_fault_costs_what_the_table_says(
    kind: str, method: str, moment: str, error: str, caplog: pytest.LogCaptureFixture
) -> None:
    fault = Fault(kind, method, moment, ERRORS[error])
    outcome, rule = serve(lambda: build(kind, method, fault), requests(kind)), fault_of(kind, method)
    whole = unharmed(kind, method)
    due = {"first": 1, "third": 3, "always": 1}[moment]
    assert fault.calls >= due, "the method was not called"
    assert outcome.errors.keys() <= (set(OWN) if _owns(rule.ends) else set()), outcome.errors
    for name in (*OTHERS, *OWN):
        if name not in outcome.errors:
            assert outcome.tokens[name] == whole.tokens[name], f"{name} got other tokens"
    survived = method in ("cached", "fits")  # where a policy asks, its guard stands around the call
    assert len(outcome.deaths) in ((0, 1) if survived else (int(rule.replaces_engine),))
    said = [*outcome.errors.values(), *outcome.deaths, *(record.getMessage() for record in caplog.records)]
    assert any(_names(line, kind, method) for line in said), said
    for line in (*outcome.errors.values(), *outcome.deaths):
        assert _names(line, kind, method), line


def _owns(ends: Ends) -> bool:
    return ends in (Ends.ARRIVING, Ends.REQUEST, Ends.PROCESSED, Ends.TOGETHER)


def _names(line: str, kind: str, method: str) -> bool:
    if method in ("capacity", "free"):  # a cache reads them in methods of its own, too
        return f"{title(kind)}: " in line and " failed: " in line
    # Details are read with the tokens.
    return f"{title(kind)}: {method.replace('Chosen.details', 'Chosen.read')} failed: " in line


@pytest.mark.parametrize("error", ERRORS)
def test_only_the_request_ends_at_which_a_strategy_fails(error: str) -> None:
    """All requests of the strategy ended with it: 24 of 24."""

    class Failing(Own):
        def decide(self, requests, logits):  # type: ignore[no-untyped-def]
            if any(request.id == "own-1" for request in requests):
                raise ERRORS[error]()
            return super().decide(requests, logits)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PARTS, "decoding", Failing)
        outcome = serve(lambda: build("decoding", "", None), requests("decoding"))
    assert set(outcome.errors) == {"own-1"}
    assert _names(outcome.errors["own-1"], "decoding", "decide")
    whole = unharmed("decoding", "")
    assert all(outcome.tokens[name] == whole.tokens[name] for name in (*OTHERS, "own-2"))


def test_there_are_hundreds_of_cases() -> None:
    assert len(CASES) >= 200


def test_the_table_has_every_kind() -> None:
    assert {fault.kind for fault in FAULTS} == {*KINDS}
    watching = {method for fault in FAULTS if fault.kind == "observer" for method in fault.methods}
    assert {*OBSERVER_HOOKS, "figures"} == watching


def test_the_table_has_every_method_of_every_base() -> None:
    """A method that is new needs a rule."""
    for kind in KINDS.values():
        ruled = {method for fault in FAULTS if fault.kind == kind.name for method in fault.methods}
        unruled = {name for name in _methods(kind.base) if name not in ruled}
        assert not unruled, f"{kind.name}: {unruled}"


def _methods(base: type) -> set[str]:
    return {
        name
        for name, member in vars(base).items()
        if not name.startswith("_") and (callable(member) or isinstance(member, property))
    }
