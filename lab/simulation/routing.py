"""The server's part of a simulated fleet: what it knows of its replicas, and the router that it asks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from turnout.core.engine.packed_prompt import PackedPrompt
from turnout.core.engine.prefix_index import PrefixIndex
from turnout.core.errors import PluginError
from turnout.core.interfaces.router import Replica, Routable, Router, chosen_replica
from turnout.core.plugin_faults import fault_message, plugin_errors, title_of
from turnout.lab.simulation.news import Told

__all__ = ["Routing"]


class Routing:
    """Chooses a replica for each request. It knows what engines have told, and what was sent to them."""

    def __init__(self, router: Router, names: Sequence[str]) -> None:
        """names: of the replicas."""
        self._router = router
        self._prefixes = PrefixIndex()
        self._views = [Replica(name, 0, 0, find=self._prefixes.find) for name in names]

    def packed(self, prompt: Sequence[int]) -> PackedPrompt:
        """A prompt as the router reads it fastest."""
        return self._prefixes.packed(prompt)

    def requests(self, number: int) -> int:
        """How many a replica has that have not ended."""
        return self._views[number].requests

    def take(self, news: Iterable[Told]) -> None:
        """Take what engines have told."""
        for told in news:
            view = self._views[told.replica]
            if told.blocks:
                self._prefixes.note(view.name, told.blocks)
            if told.load is not None:
                waiting, use = told.load
                self._views[told.replica] = view._replace(waiting=waiting, kv_use=use)

    def choose(self, request: Routable) -> int:
        """Returns the number of the replica for a request. Raises PluginError where the router fails."""
        try:
            return chosen_replica(self._router, request, self._views)
        except plugin_errors() as error:
            raise PluginError(fault_message(title_of(self._router, "router"), "route", error)) from error

    def count(self, number: int, requests: int, tokens: int) -> None:
        """Note that a replica has so many more, or fewer."""
        view = self._views[number]
        self._views[number] = view._replace(requests=view.requests + requests, tokens=view.tokens + tokens)
