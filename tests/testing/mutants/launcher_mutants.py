"""Our launchers, each with one mistake."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

from turnout.core.interfaces.launcher import Death, EngineOrder
from turnout.plugins.launchers.local import Local, LocalEngine


class Forgets(Local):
    """Never learns that an engine has ended."""

    def launch(self, order: EngineOrder) -> LocalEngine:
        engine = super().launch(order)
        engine.death = Future()
        return engine


class Blames(Local):
    """Takes each end for a fault of what ran."""

    def launch(self, order: EngineOrder) -> LocalEngine:
        engine, blamed = super().launch(order), Future[Death]()
        engine.death.add_done_callback(lambda _: blamed.set_result(Death("ended", fault=True)))
        engine.death = blamed
        return engine


class MissesTheAddress(Local):
    """Has the engine connect to where no server is."""

    def command(self, order: EngineOrder, url: str) -> Sequence[str]:
        return super().command(order, f"{url}-elsewhere")


LAUNCHERS = [Forgets, Blames, MissesTheAddress]
