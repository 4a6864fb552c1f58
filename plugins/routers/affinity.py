"""What routers share that send what belongs together to one place."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from turnout.core.errors import ConfigError
from turnout.core.interfaces.router import Replica, rendezvous

__all__ = ["checked_slack", "preferred"]


def checked_slack(slack: float) -> float:
    """Raises ConfigError for what is neither 0 nor at least 1."""
    if slack == 0 or 1 <= slack < float("inf"):
        return slack
    raise ConfigError(f"slack must be 0, for no bound, or at least 1 (times the mean load), not {slack:g}")


def preferred(key: bytes, replicas: Sequence[Replica], slack: float) -> int:
    """The first by rendezvous hashing that has less than `slack` times the mean load; 0: the first.

    Consistent hashing with bounded loads (Mirrokni, Thorup and Zadimoghaddam, SODA 2018).
    """
    order = rendezvous(key, replicas)
    if not slack:
        return order[0]
    # As if it were there already, so that there is always one below.
    most = ceil(slack * (1 + sum(replica.requests for replica in replicas)) / len(replicas))
    return next(index for index in order if replicas[index].requests < most)
