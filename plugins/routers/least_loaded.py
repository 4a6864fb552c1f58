"""Least loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, get_args

from turnout.core.errors import ConfigError
from turnout.core.router import Replica, Routable, Router

__all__ = ["By", "LeastLoaded", "least_loaded"]

By = Literal["requests", "tokens"]


class LeastLoaded(Router):
    """Where there is least to do; of equals, the one that was chosen longest ago.

    `by`: what is counted of those that have not ended: ``requests``, or ``tokens`` of prompt and output
    allowed."""

    def __init__(self, by: By = "requests") -> None:
        if by not in get_args(By):
            raise ConfigError(f"by must be one of {', '.join(get_args(By))}, not {by!r}")
        self._load: Callable[[Replica], int] = _requests if by == "requests" else _tokens
        self._chosen: dict[str, int] = {}
        self._count = 0

    def route(self, request: Routable, replicas: Sequence[Replica]) -> int:
        index = least_loaded(replicas, self._load, self._chosen)
        self._count += 1
        self._chosen[replicas[index].name] = self._count
        return index


def least_loaded(
    replicas: Sequence[Replica], load: Callable[[Replica], int], chosen: dict[str, int] | None = None
) -> int:
    """`chosen`: when each was, by name; the earliest of equals is returned."""
    last = chosen or {}
    return min(range(len(replicas)), key=lambda i: (load(replicas[i]), last.get(replicas[i].name, 0)))


def _requests(replica: Replica) -> int:
    return replica.requests


def _tokens(replica: Replica) -> int:
    return replica.tokens
