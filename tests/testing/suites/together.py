"""What a process of its own shows of all plugins of a kind at once: one for each of them takes seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from turnout.core.registry.registry import Registry
from turnout.testing.checks.fresh_process import run_fresh, run_otherwise_hashed
from turnout.testing.suites.suite import HEAVY, LOADED, Suite

__all__ = ["ImportedTogether", "assert_hashes_decide_nothing", "assert_torch_is_not_imported"]


class ImportedTogether(Suite[Any]):
    """What `assert_torch_is_not_imported` shows of all, each alone shows by -m slow."""

    @pytest.mark.slow
    def test_importing_it_imports_no_torch(self) -> None:
        super().test_importing_it_imports_no_torch()


def assert_torch_is_not_imported(kind: str, specs: Iterable[str]) -> None:
    """By importing their modules, one after the other."""
    registry = Registry.load()
    modules = sorted({type(registry.create(kind, spec)).__module__ for spec in specs})
    imported = "".join(f"import {module}\n" for module in modules)
    found = run_fresh(modules[0], imported + LOADED.format(heavy=HEAVY))
    assert not found, f"one of {modules} imports {found}"


def assert_hashes_decide_nothing(
    kind: str, specs: Iterable[str], function: Callable[[Any, int], object]
) -> None:
    """`function` of a new plugin of each spec and a seed is the same where strings have other hashes."""
    registry = Registry.load()

    def arguments() -> list[tuple[Any, int]]:
        return [(registry.create(kind, spec), seed) for spec in specs for seed in range(8)]

    elsewhere = run_otherwise_hashed(function, arguments())
    assert elsewhere == str([function(*each) for each in arguments()])
