"""The suite of observers, on one that takes notes and on one that fails."""

from __future__ import annotations

from typing import Any

import pytest

from turnout.core.errors import UnknownPlugin
from turnout.core.registry.hookspecs import hookimpl
from turnout.core.registry.registry import Registry
from turnout.testing import ObserverSuite


class Notes:
    def __init__(self) -> None:
        self.taken: list[object] = []

    @hookimpl
    def step_finished(self, step: object) -> None:
        self.taken.append(step)

    @hookimpl
    def request_finished(self, request: object) -> None:
        self.taken.append(request)


class Clumsy:
    @hookimpl
    def request_finished(self, request: Any) -> None:
        raise ValueError(request.id)


class FailsAtPreemptions:
    @hookimpl
    def request_preempted(self, request: Any) -> None:
        raise ValueError(request.id)


class FailsAtClientsThatLeave:
    @hookimpl
    def request_finished(self, request: Any) -> None:
        assert request.finish_reason in ("stop", "length")


class TestObserver(ObserverSuite):
    plugin = "Notes"
    notes = Notes()

    def registry(self) -> Registry:
        return Registry.load(extra=[self.notes])


@pytest.mark.parametrize("observer", [Clumsy, FailsAtPreemptions, FailsAtClientsThatLeave])
def test_one_that_raises_is_found(observer: type) -> None:
    class Failing(ObserverSuite):
        plugin = observer.__name__

        def registry(self) -> Registry:
            return Registry.load(extra=[observer()])

    with pytest.raises(AssertionError, match=rf"{observer.__name__}.* raised"):
        Failing().test_every_record_is_accepted()


def test_one_that_is_not_there_is_found() -> None:
    class Missing(ObserverSuite):
        plugin = "nobody"

    with pytest.raises(UnknownPlugin, match="nobody"):
        Missing().test_it_implements_a_hook()
