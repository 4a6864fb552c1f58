"""Guards a router: where it fails, the request goes to the replica with the fewest, and the log says why."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from turnout.core.interfaces.router import Replica, Routable, Router, chosen_replica
from turnout.core.plugin_faults import PluginFaults, plugin_errors

__all__ = ["GuardedRouter"]

logger = logging.getLogger(__name__)


class GuardedRouter:
    """Asks a router for each request, where there is a choice."""

    def __init__(self, router: Router | None) -> None:
        """None: for a single replica."""
        self.faults = 0
        """Answers that could not be carried out."""
        self._router = router
        self._plugin_faults = PluginFaults("router", logger)

    def route(self, request: Routable, replicas: Sequence[Replica]) -> int:
        """The index in `replicas`, of which there is at least one."""
        if self._router is None:
            return 0
        try:
            return chosen_replica(self._router, request, replicas)
        except plugin_errors() as error:
            self.faults += 1
            self._plugin_faults.report(self._router, "route", error)
            return min(range(len(replicas)), key=lambda index: replicas[index].requests)
