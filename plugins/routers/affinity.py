"""The base of routers that send related requests to one replica."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Annotated

from pydantic import Field

from turnout.core.errors import ConfigError
from turnout.core.interfaces.router import Replica, first_by_rendezvous, rendezvous

__all__ = ["Slack", "checked_slack", "preferred"]

Slack = Annotated[
    float,
    Field(
        description="A replica with this many times the mean load gets no more requests, and the next by "
        "hash does; 0: no limit."
    ),
]


def checked_slack(slack: float) -> float:
    """Returns `slack`. Raises ConfigError unless it is 0 or at least 1."""
    if slack == 0 or 1 <= slack < float("inf"):
        return slack
    raise ConfigError(f"slack must be 0, for no bound, or at least 1 (times the mean load), not {slack:g}")


def preferred(key: bytes, replicas: Sequence[Replica], slack: float) -> int:
    """Returns the first replica by rendezvous hashing that has less than `slack` times the mean load.

    With a slack of 0, that is the first replica whatever its load.

    Consistent hashing with bounded loads (Mirrokni, Thorup and Zadimoghaddam, SODA 2018).
    """
    first = first_by_rendezvous(key, replicas)
    if not slack:
        return first
    # The request counts as sent already, so that at least one replica is below.
    most = ceil(slack * (1 + sum([replica.requests for replica in replicas])) / len(replicas))
    if replicas[first].requests < most:
        return first
    return next(index for index in rendezvous(key, replicas) if replicas[index].requests < most)
