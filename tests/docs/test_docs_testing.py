"""docs/reference/plugins/testing.md has every suite and every claim."""

from __future__ import annotations

from typing import Any

from documents import DOCS, code, rows

import turnout.testing as kit
from turnout.testing.suites.suite import Suite

(PAGE,) = [document for document in DOCS if document.path.name == "testing.md"]
SUITES = [name for name in kit.__all__ if name != "Suite"]


def claims(suite: Any) -> set[str]:
    """Class attributes that a plugin's author may set."""
    return {name for name in vars(suite).get("__annotations__", {}) if not name.startswith("_")}


def test_every_suite_is_there() -> None:
    listed = [code(row[0])[0] for row in rows(PAGE.section("The suites"))]
    assert sorted(listed) == sorted(SUITES)


def test_every_claim_is_there() -> None:
    listed = {
        (name, code(row[0])[0])
        for row in rows(PAGE.section("What a plugin claims"))[1:]
        for name in code(row[1])
    }
    own = {
        (claim, name) for name in SUITES for claim in claims(getattr(kit, name)) - {"trials", "kind", "spec"}
    }
    assert own <= {(name.partition("(")[0], suite) for name, suite in listed}
    for name, suite in listed:
        assert hasattr(getattr(kit, suite), name.partition("(")[0]), f"{suite} has no {name}"


def test_suites_are_plain_classes() -> None:
    """So that they run without pytest."""
    for name in SUITES:
        suite = getattr(kit, name)
        assert not name.startswith("Test")
        assert name == "ObserverSuite" or issubclass(suite, Suite)
        assert any(test.startswith("test_") for test in vars(suite))
