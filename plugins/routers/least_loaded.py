"""Routes to the least loaded replica."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Annotated, Literal, get_args

from pydantic import Field

from turnout.core.errors import ConfigError
from turnout.core.interfaces.router import Replica, Routable, Router
from turnout.plugins.routers.turns import Turns

__all__ = ["LeastLoaded"]

By = Literal["requests", "tokens"]


class LeastLoaded(Router):
    """Routes to the replica with the least load; of equals, to the one chosen longest ago."""

    def __init__(
        self,
        by: Annotated[
            By,
            Field(
                description="What makes the load of requests that have not ended: their number, or the "
                "tokens of their prompts and of the outputs that they may have."
            ),
        ] = "requests",
    ) -> None:
        if by not in get_args(By):
            raise ConfigError(f"by must be one of {', '.join(get_args(By))}, not {by!r}")
        self._load: Callable[[Replica], int] = attrgetter(by)
        self._turns = Turns()

    def route(self, request: Routable, replicas: Sequence[Replica]) -> int:
        loads = [*map(self._load, replicas)]
        index = self._turns.idlest(loads, min(loads), replicas)
        self._turns.note(replicas[index])
        return index
