"""What plugins rely on goes in two steps: a minor version that warns, and the next one. With made-up ones."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from turnout.core.deprecation import Deprecation, PluginDeprecationWarning
from turnout.core.engine.observers import Observers
from turnout.core.errors import PluginError
from turnout.core.interfaces.scheduling import SchedulingPolicy
from turnout.core.registry import hookspecs
from turnout.core.registry.hookspecs import hookimpl
from turnout.core.registry.registry import Registry
from turnout.core.types.views import RequestView, View

ROOT = Path(__file__).parent.parent.parent


def gone(name: str) -> Deprecation:
    return Deprecation(name, since="1.4", instead="use what came after it")


class Patient(SchedulingPolicy):
    """Lets those who wait, wait."""

    patience = 3.0

    def order(self, view: View) -> Iterable[RequestView]:
        return view.running or view.waiting

    def soothe(self) -> None: ...


class Inherited(Patient):
    """Defines nothing of its own."""


@hookimpl(specname="register_schedulers")
def _register(register: Callable[..., None]) -> None:
    register("patient", Patient)
    register("inherited", Inherited)


def load(**stated: object) -> Registry:
    return Registry.load(extra=[SimpleNamespace(register_schedulers=_register, **stated)])


def test_who_implements_a_hook_that_goes_is_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    spec: Any = hookspecs.register_schedulers
    warning = gone("the hook register_schedulers").warning()
    monkeypatch.setitem(spec.turnout_spec, "warn_on_impl", warning)
    with pytest.warns(PluginDeprecationWarning, match=r"^the hook register_schedulers is deprecated") as seen:
        registry = load()
    assert any(record.filename == __file__ for record in seen), "it names the line of the plugin"
    assert isinstance(registry.create("scheduler", "patient"), Patient)


def test_who_takes_a_hooks_parameter_that_goes_is_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    spec: Any = hookspecs.step_finished
    warning = gone("the parameter step of step_finished").warning()
    monkeypatch.setitem(spec.turnout_spec, "warn_on_impl_args", {"step": warning})

    @hookimpl
    def step_finished(step: object) -> None: ...

    @hookimpl
    def without() -> None: ...

    with pytest.warns(PluginDeprecationWarning, match=r"^the parameter step of step_finished is deprecated"):
        assert Observers(
            **Registry.load(extra=[SimpleNamespace(step_finished=step_finished)]).observers()
        ).of_steps
    with warnings.catch_warnings(action="error"):
        assert Observers(**Registry.load(extra=[SimpleNamespace(step_finished=without)]).observers()).of_steps


@pytest.mark.parametrize("member", ["soothe", "patience"])
@pytest.mark.parametrize("name", ["patient", "inherited"])
def test_who_defines_a_member_that_goes_is_warned(
    monkeypatch: pytest.MonkeyPatch, member: str, name: str
) -> None:
    """A method, or an attribute; also one that comes from a plugin's own base class."""
    members = {member: gone(f"SchedulingPolicy.{member}"), "unknown": gone("SchedulingPolicy.unknown")}
    monkeypatch.setattr(SchedulingPolicy, "deprecated_members", members, raising=False)
    registry = load()
    message = (
        rf"^scheduler '{name}' of SimpleNamespace defines SchedulingPolicy.{member}, which is deprecated "
        r"since Turnout 1\.4, and gone in 1\.5: use what came after it$"
    )
    with pytest.warns(PluginDeprecationWarning, match=message) as seen:
        registry.create("scheduler", name)
    assert len(seen) == 1
    with warnings.catch_warnings(action="error"):
        registry.create("scheduler", "fcfs")


def test_who_reads_what_goes_is_warned_where_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    made_up = property(gone("View.crowd").when_used(lambda view: len(view.running)))
    monkeypatch.setattr(View, "crowd", made_up, raising=False)
    view: Any = View(0.0, (), (), None, None, None, None)  # type: ignore[arg-type]
    with pytest.warns(
        PluginDeprecationWarning, match=r"^View\.crowd is deprecated since Turnout 1\.4"
    ) as seen:
        assert view.crowd == 0
    assert seen[0].filename == __file__


def test_a_plugin_for_the_hook_api_before_is_used_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hookspecs, "HOOK_API_VERSION", 3)
    monkeypatch.setattr(hookspecs, "OLDEST_HOOK_API", 2)
    with pytest.warns(
        PluginDeprecationWarning, match=r"was written for hook API 2, this Turnout has 3: it works"
    ):
        registry = load(turnout_hook_api=2)
    assert isinstance(registry.create("scheduler", "patient"), Patient)
    assert registry.entry("scheduler", "patient").hook_api == 2
    with warnings.catch_warnings(action="error"):
        assert load(turnout_hook_api=3).create("scheduler", "patient")


@pytest.mark.parametrize("wanted", [1, 4, "3", 2.5, None])
def test_for_any_other_it_is_not_used(monkeypatch: pytest.MonkeyPatch, wanted: object) -> None:
    monkeypatch.setattr(hookspecs, "HOOK_API_VERSION", 3)
    monkeypatch.setattr(hookspecs, "OLDEST_HOOK_API", 2)
    with pytest.raises(PluginError, match=f"written for hook API {wanted} "):
        load(turnout_hook_api=wanted).create("scheduler", "SimpleNamespace")


def test_it_is_shown_to_whoever_runs_it() -> None:
    assert issubclass(PluginDeprecationWarning, FutureWarning), "others are hidden by default"


def test_nothing_stays_deprecated_for_longer_than_a_minor_version() -> None:
    """What this finds has had its time: remove it."""
    now = tuple(map(int, version("turnout").split(".")[:2]))
    for file in ROOT.rglob("*.py"):
        if "tests" not in file.parts and "Deprecation(" in (text := file.read_text(encoding="utf-8")):
            for since in _deprecated_since(text):
                assert tuple(map(int, since.split("."))) >= now, f"{file} deprecates since {since}"


def _deprecated_since(source: str) -> list[str]:
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    made = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "Deprecation"]
    said = [keyword.value for call in made for keyword in call.keywords if keyword.arg == "since"]
    found = [str(value.value) for value in said if isinstance(value, ast.Constant)]
    assert len(found) == len(made), "say `since` as a constant, by its name"
    assert all(re.fullmatch(r"\d+\.\d+", since) for since in found)
    return found


def test_that_would_find_one() -> None:
    assert _deprecated_since('gone = Deprecation("x", since="0.7", instead="use y")') == ["0.7"]
