"""Routes the turns of a session to one replica."""

from __future__ import annotations

from collections.abc import Sequence

from turnout.core.interfaces.router import Replica, Routable, Router
from turnout.plugins.routers.affinity import Slack, checked_slack, preferred

__all__ = ["SessionAffinity"]


class SessionAffinity(Router):
    """Routes by a hash of the session, else of the client, else of the request itself."""

    def __init__(self, slack: Slack = 0.0) -> None:
        self._slack = checked_slack(slack)
        self.watches = slack != 0

    def route(self, request: Routable, replicas: Sequence[Replica]) -> int:
        named = (("session", request.session), ("client", request.client))
        kind, name = next(((kind, name) for kind, name in named if name), ("request", request.id))
        return preferred(f"{kind} {name}".encode(), replicas, self._slack)
