"""The conformance suite of observers."""

from __future__ import annotations

from typing import ClassVar

from turnout.core.engine.observers import Observers
from turnout.core.errors import UnknownPlugin
from turnout.core.interfaces.observers import Observer
from turnout.core.registry.kinds import OBSERVER_HOOKS, OBSERVER_KIND
from turnout.core.registry.registry import Registry
from turnout.plugins.schedulers.fcfs import Fcfs
from turnout.testing.checks.brute_force import assert_expected_tokens
from turnout.testing.checks.logged_errors import assert_no_errors_logged
from turnout.testing.toy.engine import drive, toy_engine, toy_request
from turnout.testing.toy.runner import toy_kv

__all__ = ["ObserverSuite"]


class ObserverSuite:
    """The observer `spec`, or the hooks of `plugin`, take every record, and disturb nothing."""

    kind = OBSERVER_KIND
    spec: ClassVar[str] = ""
    """``NAME`` or ``NAME:option=value,…``, as after ``--observer``; for hooks, `plugin` is given instead."""
    plugin: ClassVar[str] = ""
    """The name of the entry point of hooks, which ``turnout plugins`` lists before the dot."""

    def registry(self) -> Registry:
        return Registry.load()

    def observers(self) -> Observers:
        """All hooks of the registry, and a new observer of `spec`."""
        observers = Observers(**self.registry().observers())
        if self.spec:
            observers.choose(self.registry().create("observer", self.spec))
        return observers

    def test_it_implements_a_hook(self) -> None:
        if self.spec:
            made = type(self.registry().create("observer", self.spec))
            assert any(getattr(made, hook) is not getattr(Observer, hook) for hook in OBSERVER_HOOKS), (
                f"{made.__name__} overrides none of {', '.join(OBSERVER_HOOKS)}, so it is never called"
            )
            return
        names = {f"{self.plugin}.{hook}" for hook in OBSERVER_HOOKS}
        found = [entry.name for entry in self.registry().entries() if entry.kind == OBSERVER_KIND]
        if not names & set(found):
            raise UnknownPlugin(
                f"no observer is called {self.plugin!r}; installed: {', '.join(found) or 'none'}"
            )

    def test_every_record_is_accepted(self) -> None:
        """No observer raises: the engine stops calling those that do."""
        observers = self.observers()
        before = _watching(observers)
        specs = [toy_request(f"r{i}", [1 + i % 5] * (1 + i), "parallel", 6, n=1 + i % 3) for i in range(12)]
        # So little memory that requests are preempted.
        engine = toy_engine(Fcfs(), toy_kv(16, 4), slots=12, observers=observers)
        outcome = drive(engine, [(i // 2, spec) for i, spec in enumerate(specs)])
        engine.add(toy_request("left", [1, 2, 3], "parallel", 6))
        engine.step()
        engine.abort("left")
        left = _watching(observers)
        with assert_no_errors_logged("turnout.core.engine.observers"):
            engine.close()
        for spec in specs:
            assert_expected_tokens(spec, outcome)
        gone = before - left
        assert not gone, (
            f"the engine stopped calling {', '.join(sorted(gone))}, which raised; the log has the error"
        )
        assert engine.stats().preemptions, "no request was preempted, so its record was not tried"

    def test_its_figures_can_be_shown(self) -> None:
        engine = toy_engine(Fcfs(), toy_kv(24, 4), observers=self.observers())
        engine.add(toy_request("r", [1, 2, 3], "parallel", 6))
        with assert_no_errors_logged("turnout.core.engine.figures"):
            while engine.busy:
                engine.step()
                engine.stats()


def _watching(observers: Observers) -> set[str]:
    return {f"{getattr(each.hook, '__name__', 'hook')} of {each.name}" for each in observers.all()}
