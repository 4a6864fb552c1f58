"""Longest job first."""

from __future__ import annotations

from turnout.plugins.schedulers.ranking import AgedLength

__all__ = ["Ljf"]


class Ljf(AgedLength):
    """Admits the longest waiting request first; nobody overtakes it. The running are not preempted for it.

    For batches: what takes longest starts first, so that it does not run alone at the end (Graham,
    "Bounds on multiprocessing timing anomalies", 1969; elsewhere called LPT).

    `by`: the length, in tokens: ``prompt``; ``max_tokens``, of all its choices; or ``predicted`` output,
    by the length predictor when the request comes to wait. `aging`: a request ranks as so many tokens
    longer for each second since it arrived; 0: never. Ties go to those preempted, then to who came first.

    Bound: a request of length L is overtaken by none that arrives more than ``(longest - L) / aging``
    seconds after it, `longest` being the greatest length that anybody asks for.
    """

    sign = -1
