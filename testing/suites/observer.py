"""The conformance suite of observers."""

from __future__ import annotations

from typing import ClassVar

from turnout.core.engine.observers import Observers
from turnout.core.errors import UnknownPlugin
from turnout.core.registry.kinds import OBSERVER_HOOKS, OBSERVER_KIND
from turnout.core.registry.registry import Registry
from turnout.plugins.schedulers.fcfs import Fcfs
from turnout.testing.checks.brute_force import assert_expected_tokens
from turnout.testing.checks.logged_errors import assert_no_errors_logged
from turnout.testing.toy.engine import drive, toy_engine, toy_request
from turnout.testing.toy.runner import toy_kv

__all__ = ["ObserverSuite"]


class ObserverSuite:
    """The observers of `plugin` take every record, and disturb nothing."""

    kind = OBSERVER_KIND
    plugin: ClassVar[str] = ""
    """The name of its entry point, which ``turnout plugins`` lists before the dot; it must be given."""

    def registry(self) -> Registry:
        return Registry.load()

    def test_it_implements_a_hook(self) -> None:
        names = {f"{self.plugin}.{hook}" for hook in OBSERVER_HOOKS}
        found = [entry.name for entry in self.registry().entries() if entry.kind == OBSERVER_KIND]
        if not names & set(found):
            raise UnknownPlugin(
                f"no observer is called {self.plugin!r}; installed: {', '.join(found) or 'none'}"
            )

    def test_every_record_is_accepted(self) -> None:
        """No observer raises: the engine stops calling those that do."""
        observers = Observers(**self.registry().observers())
        before = _watching(observers)
        specs = [toy_request(f"r{i}", [1 + i % 5] * (1 + i), "parallel", 6, n=1 + i % 3) for i in range(12)]
        engine = toy_engine(Fcfs(), toy_kv(24, 4), observers=observers)
        outcome = drive(engine, [(i // 2, spec) for i, spec in enumerate(specs)])
        left = _watching(observers)
        with assert_no_errors_logged("turnout.core.engine.observers"):
            engine.close()
        for spec in specs:
            assert_expected_tokens(spec, outcome)
        gone = before - left
        assert not gone, (
            f"the engine stopped calling {', '.join(sorted(gone))}, which raised; the log has the error"
        )


def _watching(observers: Observers) -> set[str]:
    return {observer.name for observer in observers.all()}
