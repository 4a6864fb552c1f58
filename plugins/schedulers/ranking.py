"""What policies that rank share: what they keep about requests, lengths, and aging.

By length, a request's rank is ``tokens + aging * arrival``, and the lowest goes first. Gaining `aging` tokens
for each second of waiting amounts to starting that far behind for each second of later arrival, compared with
the other waiting requests. So the order of two waiting requests does not change with time, and a request that
arrives ``tokens / aging`` seconds later cannot overtake.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from turnout.core.errors import ConfigError
from turnout.core.interfaces.scheduling import SchedulingPolicy
from turnout.core.scheduling.order import Order
from turnout.core.types.request import RequestView
from turnout.core.types.views import View
from turnout.plugins.schedulers.ranked_queue import RankedQueue

__all__ = ["AgedLength", "Aging", "By", "non_negative"]

By = Literal["prompt", "max_tokens", "predicted"]
Aging = Annotated[
    float,
    Field(description="Tokens by which a request moves ahead for each second since it arrived; 0: none."),
]


def non_negative(name: str, value: float) -> float:
    """Returns the value of an option. Raises ConfigError unless it is a number of at least 0."""
    if not 0 <= value < math.inf:
        raise ConfigError(f"{name} must be a number of at least 0, not {value}")
    return value


class AgedLength(SchedulingPolicy):
    """Serves running requests first; admits by ``sign * length + aging * arrival``, the lowest first."""

    head_of_line = True
    runners_first = True
    sign: ClassVar[int]

    def __init__(
        self,
        by: Annotated[
            By,
            Field(
                description="The length, in tokens: of the `prompt`, of `max_tokens` of all choices, or of "
                "the output as the length predictor has `predicted` it."
            ),
        ] = "predicted",
        aging: Aging = 10.0,
    ) -> None:
        if by not in _LENGTHS:
            raise ConfigError(f"by must be one of {', '.join(_LENGTHS)}, not {by!r}")
        self._length = _LENGTHS[by]
        self._aging = non_negative("aging", aging)
        self._queue = RankedQueue[float]()

    def order(self, view: View) -> Order:
        length, sign, aging = self._length(view), self.sign, self._aging

        def rank(request: RequestView) -> float:
            return sign * length(request) + aging * request.arrival

        self._queue.update(view, rank)
        return self._queue.behind(view.running)

    def why(self, request: RequestView) -> str:
        if (rank := self._queue.ranks.get(request)) is None:
            return "runs: none is preempted for one that waits"
        length = self.sign * (rank - self._aging * request.arrival)
        return f"length {length:.0f}; the {'shortest' if self.sign > 0 else 'longest'} goes first"


def _prompt_tokens(request: RequestView) -> float:
    return request.prompt_tokens


def _most_output(request: RequestView) -> float:
    return request.choices * request.max_tokens


def _by_prompt(view: View) -> Callable[[RequestView], float]:
    return _prompt_tokens


def _by_max_tokens(view: View) -> Callable[[RequestView], float]:
    return _most_output


def _by_prediction(view: View) -> Callable[[RequestView], float]:
    return view.predict


_LENGTHS: dict[str, Callable[[View], Callable[[RequestView], float]]] = {
    "prompt": _by_prompt,
    "max_tokens": _by_max_tokens,
    "predicted": _by_prediction,
}
"""Functions of the module, so that a policy can be handed to another process."""
