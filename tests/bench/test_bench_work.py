"""What benches give to those that they compare, and how they check what comes back."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace

import click
import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a bench, with the modules that benches share."""
    for folder in (BENCH, BENCH / "requests"):
        monkeypatch.syspath_prepend(str(folder))

    def imported(name: str) -> ModuleType:
        monkeypatch.delitem(sys.modules, name, raising=False)
        return import_module(name)

    return imported


def test_beams_are_of_prompts_that_no_turn_had_before(bench: Callable[[str], ModuleType]) -> None:
    """The first of eight prompts was that of the turn with one, which Turnout had cached, unlike the peer."""
    given: list[list[int]] = []

    def run(prompts: list[list[int]]) -> float:
        given.extend(prompts)
        return 1.0

    for count in (1, 8):
        bench("beams").measure({"one": run, "other": run}, count, 16, repeats=2)
    assert len(given) == len(set(map(tuple, given)))


@pytest.mark.parametrize("number", [0.5, float("nan")])
def test_embeddings_that_differ_are_noticed(bench: Callable[[str], ModuleType], number: float) -> None:
    """NaN is not below any bound."""
    engines = [SimpleNamespace(name="turnout"), SimpleNamespace(name="peer")]
    with pytest.raises(click.ClickException, match="peer gives another vector"):
        bench("embeddings").check(engines, [[1.0, 0.0], [number, 0.0]], 0.999)
