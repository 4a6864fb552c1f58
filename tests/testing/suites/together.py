"""What a process of its own shows of all plugins of a kind at once: one for each of them takes seconds."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from turnout.core.registry.registry import Registry
from turnout.testing.checks.fresh_process import run_fresh, run_otherwise_hashed
from turnout.testing.suites.suite import HEAVY, LOADED

__all__ = ["assert_hashes_decide_nothing", "assert_torch_is_not_imported"]


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
    """`function` of a new plugin of each spec and a seed is the same where strings have other hashes.

    But of those that cannot be handed to another process, which the suite leaves out too.
    """
    registry, chosen = Registry.load(), []
    for spec in specs:
        with suppress(pickle.PicklingError, TypeError, AttributeError):
            pickle.dumps(registry.create(kind, spec))
            chosen.append(spec)
    assert len(chosen) > 2, f"only {chosen} can be handed to another process"

    def arguments() -> list[tuple[Any, int]]:
        return [(registry.create(kind, spec), seed) for spec in chosen for seed in range(8)]

    elsewhere = run_otherwise_hashed(function, arguments())
    assert elsewhere == str([function(*each) for each in arguments()])
