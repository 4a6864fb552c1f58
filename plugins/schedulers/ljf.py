"""Longest job first."""

from __future__ import annotations

from turnout.plugins.schedulers.ranking import AgedLength

__all__ = ["Ljf"]


class Ljf(AgedLength):
    """Admits the longest waiting request first; no request overtakes it, and none is preempted for it.

    For batches: the longest requests start first, so that they do not run alone at the end (Graham,
    "Bounds on multiprocessing timing anomalies", 1969; also called LPT).

    The length is predicted when the request comes to wait. Ties go to preempted requests, then to the
    earliest arrival.

    Bound: a request of length L is overtaken by none that arrives more than ``(longest - L) / aging``
    seconds after it, where `longest` is the greatest length of any request.
    """

    sign = -1
