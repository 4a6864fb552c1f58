"""docs/reference/plugins/testing.md: what each conformance suite checks, and what a plugin may claim."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import turnout.testing as kit
from turnout.scripts.reference.blocks import Blocks
from turnout.scripts.reference.tables import code, markdown, paragraph, table
from turnout.server.http.openapi.docstrings import field_docstrings
from turnout.testing.suites.kv_backend import KVBackendSuite
from turnout.testing.suites.suite import Suite, is_slow

SUITES: Sequence[type[Any]] = [getattr(kit, name) for name in kit.__all__ if name != "Suite"]
NO_CLAIMS = {"kind", "spec", "light"}
METHODS = {KVBackendSuite: ("attends", "stored")}
"""Claims that a plugin's author defines as methods."""


def blocks() -> Blocks:
    return {"suites": _suites, "claims": _all_claims}


def _suites() -> str:
    return table(("suite", "what it checks"), [(code(suite.__name__), _checked(suite)) for suite in SUITES])


def _all_claims() -> str:
    rows = [("all", *row) for row in _claims(Suite, set())]
    for suite in SUITES:
        rows += [(code(suite.__name__), *row) for row in _claims(suite, set(Suite.__annotations__))]
    return table(("suite", "attribute", "default", "meaning"), rows)


def _checked(suite: type[Any]) -> str:
    tests = [each for name, each in vars(suite).items() if name.startswith("test_")]
    said = "; ".join(map(_said, [each for each in tests if not is_slow(each)]))
    slow = "".join(f"; slow: {_said(each)}" for each in tests if is_slow(each))
    return f"{paragraph(suite.__doc__ or '')} Tests: {said}{slow}."


def _said(test: Any) -> str:
    return str(test.__name__).removeprefix("test_").replace("_", " ")


def _claims(suite: type[Any], inherited: set[str]) -> Iterator[tuple[str, str, str]]:
    """Attribute, default and meaning of all that `suite` itself lets an author set."""
    told = field_docstrings(suite)
    for name in vars(suite).get("__annotations__", {}):
        if name in told and not name.startswith("_") and name not in NO_CLAIMS | inherited:
            yield code(name), _default(getattr(suite, name)), markdown(told[name])
    for name in METHODS.get(suite, ()):
        yield code(f"{name}(…)"), "", paragraph(getattr(suite, name).__doc__)


def _default(value: object) -> str:
    if value is None or value in ("", ()) or value == {}:
        return "none"
    said = str(value)
    return code(said) if len(said) < 20 else "several"
