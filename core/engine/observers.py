"""Calls observers: with a record of each step, and of each request that ended.

Records are built only if there are observers. An observer that raises is logged and not called again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from turnout.core.errors import describe_error
from turnout.core.interfaces.observers import Observer, RequestRecord, StepRecord
from turnout.core.types.request import Request

__all__ = ["Observers"]

logger = logging.getLogger(__name__)


class Observers:
    """The hook implementations to call, by hook."""

    def __init__(
        self,
        step_finished: Iterable[Observer] = (),
        request_finished: Iterable[Observer] = (),
    ) -> None:
        self._step_finished = list(step_finished)
        self._request_finished = list(request_finished)

    def watch_steps(self, observer: Observer) -> None:
        """Adds an observer, to be called with ``step=``."""
        self._step_finished.append(observer)

    def all(self) -> list[Observer]:
        """The observers that are still called."""
        return [*self._step_finished, *self._request_finished]

    @property
    def of_steps(self) -> bool:
        return bool(self._step_finished)

    def step_finished(self, record: StepRecord) -> None:
        _tell(self._step_finished, "step", record)

    def request_finished(self, request: Request, reason: str) -> None:
        if self._request_finished:
            _tell(self._request_finished, "request", _record(request, reason))


def _record(request: Request, reason: str) -> RequestRecord:
    return RequestRecord(
        id=request.id,
        client=request.spec.client,
        priority=request.spec.priority,
        prompt_tokens=len(request.prompt),
        cached_tokens=request.cached_tokens,
        output_tokens=request.output_tokens,
        finish_reason=reason,
        timing=request.timing,
    )


def _tell(observers: list[Observer], argument: str, record: object) -> None:
    for observer in list(observers):
        try:
            observer.hook(**{argument: record})
        except Exception as error:
            logger.exception("%s failed and is not called again: %s", observer.name, describe_error(error))
            observers.remove(observer)
