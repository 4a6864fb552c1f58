"""Calls observers: with a record of each step, of what happens to requests, and of the engine's end.

Records are built only if there are observers. An observer that raises is logged and not called again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from turnout.core.engine.recording.recorder import Recorder
from turnout.core.fault_table import fault_of
from turnout.core.interfaces.observers import (
    ArrivalRecord,
    EngineRecord,
    Observer,
    PreemptionRecord,
    RequestRecord,
    StepRecord,
    WatchingHook,
)
from turnout.core.plugin_faults import fault_message, plugin_errors, title_of
from turnout.core.types.request import Request

__all__ = ["Observers"]

logger = logging.getLogger(__name__)


class Observers:
    """The hook implementations, and methods of chosen observers, to call, by hook."""

    def __init__(
        self,
        step_finished: Iterable[WatchingHook] = (),
        request_arrived: Iterable[WatchingHook] = (),
        request_preempted: Iterable[WatchingHook] = (),
        request_finished: Iterable[WatchingHook] = (),
        engine_closed: Iterable[WatchingHook] = (),
    ) -> None:
        self.arm = self.replica = ""
        """Which engine it is, where there are several."""
        self.recorder: Recorder | None = None
        """Who records for those that watch; None: nobody watches."""
        self._step_finished = list(step_finished)
        self._request_arrived = list(request_arrived)
        self._request_preempted = list(request_preempted)
        self._request_finished = list(request_finished)
        self._engine_closed = list(engine_closed)
        self.chosen: list[Observer] = []
        """Those that the configuration names."""

    def choose(self, observer: Observer) -> None:
        """Adds an observer, of which the methods that it overrides are called."""
        self.chosen.append(observer)
        for hook, hooks in (
            ("step_finished", self._step_finished),
            ("request_arrived", self._request_arrived),
            ("request_preempted", self._request_preempted),
            ("request_finished", self._request_finished),
            ("engine_closed", self._engine_closed),
        ):
            if getattr(type(observer), hook) is not getattr(Observer, hook):
                hooks.append(WatchingHook(title_of(observer, "observer"), getattr(observer, hook)))

    def watch_steps(self, observer: WatchingHook) -> None:
        """Adds an observer, to be called with ``step=``."""
        self._step_finished.append(observer)

    def all(self) -> list[WatchingHook]:
        """The observers that are still called."""
        return [
            *self._step_finished,
            *self._request_arrived,
            *self._request_preempted,
            *self._request_finished,
            *self._engine_closed,
        ]

    @property
    def of_steps(self) -> bool:
        return bool(self._step_finished)

    @property
    def of_preemptions(self) -> bool:
        return bool(self._request_preempted)

    def step_finished(self, record: StepRecord) -> None:
        _tell(self._step_finished, "step_finished", step=record)

    def request_arrived(self, request: Request, waiting: int) -> None:
        if self.recorder is not None:
            self.recorder.arrived(request)
        if self._request_arrived:
            record = ArrivalRecord(
                id=request.id,
                client=request.spec.client,
                priority=request.spec.priority,
                prompt_tokens=len(request.prompt),
                max_tokens=request.limit - len(request.prompt),
                arrival=request.timing.arrival,
                waiting=waiting,
                arm=self.arm,
                replica=self.replica,
            )
            _tell(self._request_arrived, "request_arrived", request=record)

    def request_preempted(self, request: Request) -> None:
        record = PreemptionRecord(
            id=request.id,
            client=request.spec.client,
            at=request.timing.preempted[-1],
            preemptions=len(request.timing.preempted),
            output_tokens=request.output_tokens,
            arm=self.arm,
            replica=self.replica,
        )
        _tell(self._request_preempted, "request_preempted", request=record)

    def request_finished(self, request: Request, reason: str) -> None:
        if self.recorder is not None:
            self.recorder.ended(request, reason)
        if self._request_finished:
            record = RequestRecord(
                id=request.id,
                client=request.spec.client,
                priority=request.spec.priority,
                prompt_tokens=len(request.prompt),
                cached_tokens=request.cached_tokens,
                output_tokens=request.output_tokens,
                finish_reason=reason,
                timing=request.timing,
                arm=self.arm,
                replica=self.replica,
            )
            _tell(self._request_finished, "request_finished", request=record)

    def engine_closed(self, steps: int, output_tokens: int) -> None:
        """Tells that the engine ends, once."""
        observers, self._engine_closed = self._engine_closed, []
        record = EngineRecord(steps=steps, output_tokens=output_tokens, arm=self.arm, replica=self.replica)
        _tell(observers, "engine_closed", engine=record)


def _tell(observers: list[WatchingHook], hook: str, **record: object) -> None:
    for observer in list(observers):
        try:
            observer.hook(**record)
        except plugin_errors() as error:
            message, instead = fault_message(observer.name, hook, error), fault_of("observer", hook).instead
            logger.error("%s; %s", message, instead, exc_info=error)
            observers.remove(observer)
