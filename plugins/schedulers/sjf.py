"""Shortest job first."""

from __future__ import annotations

from turnout.plugins.schedulers.ranking import AgedLength

__all__ = ["Sjf"]


class Sjf(AgedLength):
    """Admits the shortest waiting request first; no request overtakes it, and none is preempted for it.

    The least mean waiting time of all orders without preemption, if lengths are known (Smith,
    "Various optimizers for single-stage production", 1956).

    The length is predicted when the request comes to wait. Ties go to preempted requests, then to the
    earliest arrival.

    Bound: a request of length L is overtaken by none that arrives more than ``L / aging`` seconds after it.
    """

    sign = 1
