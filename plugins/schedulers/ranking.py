"""What policies that rank share: what is kept of requests, lengths, aging that turns waiting into rank.

By length, a request's rank is ``tokens + aging * arrival``, the lowest first: to gain `aging` tokens a second
while it waits is, compared with everybody who waits as well, to start so much behind for every second that it
came later. So the order of two waiting requests does not change with time, and one that comes
``tokens / aging`` seconds later cannot pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import ClassVar, Literal, TypeVar

from turnout.core.errors import ConfigError
from turnout.core.interfaces.scheduling import SchedulingPolicy
from turnout.core.types.views import RequestView, View

__all__ = ["AgedLength", "By", "amount", "kept"]

By = Literal["prompt", "max_tokens", "predicted"]
T = TypeVar("T")


def amount(name: str, value: float) -> float:
    """An option's value, if it is a number of at least 0. Raises ConfigError."""
    if not 0 <= value < math.inf:
        raise ConfigError(f"{name} must be a number of at least 0, not {value}")
    return value


def kept(
    known: dict[RequestView, T], requests: Collection[RequestView], make: Callable[[RequestView], T]
) -> dict[RequestView, T]:
    """What is `known` of each of `requests`, made for those who are new; the others are forgotten.

    So it is made once: cheap, and steady while predictors learn. `known` itself may be changed and returned.
    """
    for request in requests:
        if request not in known:
            known[request] = make(request)
    if len(known) == len(requests):
        return known
    return {request: known[request] for request in requests}


class AgedLength(SchedulingPolicy):
    """Serves the running; admits by ``sign * length + aging * arrival``, and nobody overtakes the first."""

    head_of_line = True
    runners_first = True
    sign: ClassVar[int]

    def __init__(self, by: By = "predicted", aging: float = 10.0) -> None:
        if by not in _LENGTHS:
            raise ConfigError(f"by must be one of {', '.join(_LENGTHS)}, not {by!r}")
        self._length = _LENGTHS[by]
        self._aging = amount("aging", aging)
        self._ranks: dict[RequestView, float] = {}

    def order(self, view: View) -> list[RequestView]:
        length, sign, aging = self._length(view), self.sign, self._aging

        def rank(request: RequestView) -> float:
            return sign * length(request) + aging * request.arrival

        self._ranks = kept(self._ranks, view.waiting, rank)
        return [*view.running, *sorted(view.waiting, key=self._ranks.__getitem__)]


def _prompt(request: RequestView) -> float:
    return request.prompt_tokens


def _most_output(request: RequestView) -> float:
    return request.choices * request.max_tokens


_LENGTHS: dict[str, Callable[[View], Callable[[RequestView], float]]] = {
    "prompt": lambda view: _prompt,
    "max_tokens": lambda view: _most_output,
    "predicted": lambda view: view.predict,
}
