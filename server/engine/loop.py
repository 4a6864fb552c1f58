"""The loop of the engine's process: commands in, a step, deltas out."""

from __future__ import annotations

import logging
import math

from turnout.core.clock import Clock, monotonic
from turnout.core.engine.recording.lease import Lease
from turnout.core.engine.recording.profiling import Profile, Profiling
from turnout.core.errors import ContextExceeded, Interrupted, Overloaded, RequestError
from turnout.core.interfaces.kv import PrefixAnnouncer
from turnout.core.logs import about
from turnout.core.plugin_faults import described
from turnout.core.types.messages import (
    STATS_SECONDS,
    Abort,
    AdminCommand,
    AnnouncePrefixes,
    Command,
    Delta,
    Event,
    Reply,
    Reset,
    SetEventInterval,
    StartProfile,
    StopProfile,
    Submit,
    Watch,
)
from turnout.core.types.messages.reading import UNREADABLE, check_readable
from turnout.core.types.request import RequestSpec
from turnout.server.engine.admin_commands import Assembled, carry_out, restore
from turnout.server.engine.begun import BegunLog
from turnout.server.engine.channel import EngineChannel
from turnout.server.engine.event_interval import EventInterval
from turnout.server.engine.parts import in_parts
from turnout.server.engine.preparation import POLL_SECONDS, Preparation

__all__ = ["EngineLoop"]

logger = logging.getLogger(__name__)

COMMAND_SECONDS = 0.02
"""How long commands may hold up the next step."""


class EngineLoop:
    """Steps while there is work, sleeps while there is none."""

    def __init__(
        self,
        assembled: Assembled,
        channel: EngineChannel,
        clock: Clock = monotonic,
        *,
        begun: int | None = None,
    ) -> None:
        """`begun`: the descriptor of the launcher's `BegunFile`; None: it has none."""
        self._assembled = assembled
        self._engine = assembled.engine
        self._channel = channel
        self._clock = clock
        self._preparation = Preparation(assembled.engine.limits.max_waiting)
        self._begun = BegunLog(begun, lambda: [*self._preparation.ids, *self._engine.begun()])
        if begun is not None:
            self._engine.tell_begun(self._begun.begin)
        self._scheduler = assembled.scheduler
        """The one that the configuration names."""
        self._interval = EventInterval(clock)
        self._announcer: PrefixAnnouncer | None = None
        self._lease = Lease(assembled.engine, clock)
        self._profiling = Profiling(_begin_profile, clock)
        self._profiling.name = assembled.engine.place or "engine"
        self._reported = -math.inf
        self._changed = True
        """Something happened since the last report."""

    def run(self) -> None:
        """Run until told to shut down. Raises what the engine raises."""
        try:
            while self._handle_commands():
                self._step()
        finally:
            self._preparation.close()
            self._profiling.close()
            self._engine.close()

    def _step(self) -> None:
        for request, error in self._preparation.finished():
            self._changed = True
            with about(request.log_id):
                self._add(request, error)
        events: list[Event] = self._stepped() if self._engine.busy else []
        events = self._interval.passed(events, busy=self._engine.busy)
        if self._announcer is not None:
            events += self._announcer.announced()
        events += self._report()
        if events:
            self._send(events)
        if not self._engine.busy:
            self._channel.wait(self._wait_seconds())

    def _stepped(self) -> list[Event]:
        if not self._profiling.active:
            return list(self._engine.step())
        with self._profiling.step():
            return list(self._engine.step())

    def _handle_commands(self) -> bool:
        """Carry out the commands that have come. False if the process is to leave.

        Where requests are being served, those of thousands of prompts wait: a few for each step.
        """
        began = self._clock()
        for command in self._channel.receive():
            self._changed = True
            if not self._carry_out(command):
                return False
            if self._engine.busy and self._clock() - began > COMMAND_SECONDS:
                break
        return True

    def _carry_out(self, command: Command) -> bool:
        if isinstance(command, Submit):
            with about(command.request.log_id):
                self._submit(command.request)
        elif isinstance(command, Abort):
            self._abort(command)
        elif isinstance(command, AnnouncePrefixes):
            self._announce()
        elif isinstance(command, SetEventInterval):
            self._interval.seconds = command.seconds
        elif isinstance(command, StartProfile | StopProfile):
            self._send_alone(self._profiling.carry_out(command))
        elif isinstance(command, AdminCommand):
            self._send_alone(carry_out(self._assembled, command))
        elif isinstance(command, Watch):
            self._lease.renew(command.seconds, anew=command.anew)
        elif isinstance(command, Reset):
            self._reset()
        else:
            return False
        return True

    def _reset(self) -> None:
        self._preparation.cancel_all()
        self._lease.end()
        self._profiling.close("as its server has left")
        self._interval = EventInterval(self._clock)
        self._engine.abort_all()
        restore(self._assembled, self._scheduler)
        self._send([self._assembled.ready])

    def _announce(self) -> None:
        kv = self._engine.scheduler.kv
        if isinstance(kv, PrefixAnnouncer):
            kv.announce()
            self._announcer = kv

    def _submit(self, request: RequestSpec) -> None:
        logger.debug("takes %s", request.id)
        self._begun.begin(request.id)  # what is asked whether it can be served may die of it
        try:
            if work := self._engine.preparation(request):
                self._preparation.begin(request, work)
            else:
                self._admit(request)
        except RequestError as error:
            self._refuse(request, error)

    def _admit(self, request: RequestSpec) -> None:
        if request.resume is not None:  # not before: what is held is forgotten while the engine is idle
            self._interval.hold_nothing_of(request.id)
        self._engine.add(request)
        self._begun.withdraw(request.id)

    def _add(self, request: RequestSpec, error: BaseException | None) -> None:
        """Add a request that was prepared, or refuse it with the error of its preparation."""
        try:
            if error is not None:
                raise error
            self._admit(request)
        except RequestError as refusal:
            self._refuse(request, refusal)

    def _refuse(self, request: RequestSpec, error: RequestError) -> None:
        logger.debug("refuses %s: %s", request.id, _kind(error))
        refusal = Delta(
            request_id=request.id,
            finish_reason="error",
            error=described(error),
            error_kind=_kind(error),
            error_param=error.param,
            retry_after=error.retry_after if isinstance(error, Overloaded) else 1.0,
        )
        self._send_alone(refusal)

    def _abort(self, command: Abort) -> None:
        if self._preparation.cancel(command.request_id, command.index):
            return
        timing = self._engine.abort(command.request_id, command.index)
        if command.timing and (timing is None or timing.finished is not None):
            last = Delta(
                request_id=command.request_id,
                index=command.index or 0,
                finish_reason="abort",
                timing=timing,
            )
            self._channel.send([last])

    def _send(self, events: list[Event]) -> None:
        """Send events; one that a plugin put something into that cannot be sent costs nothing but itself."""
        for message in in_parts(events):
            try:
                self._channel.send(message)
            except UNREADABLE:
                for event in message:
                    self._send_alone(event)

    def _send_alone(self, event: Event) -> None:
        """Send an event, or an error in its place if it cannot be sent, or not be read by the server."""
        try:
            check_readable([event], list[Event])
            self._channel.send([event])
        except UNREADABLE as error:
            logger.exception("a plugin gave what cannot be sent: %s", type(event).__name__)
            message = f"a plugin gave what cannot be sent to the server: {type(error).__name__}"
            if isinstance(event, Delta):
                self._engine.abort(event.request_id)
                self._channel.send(
                    [
                        Delta(
                            request_id=event.request_id,
                            finish_reason="error",
                            error=message,
                            error_kind="internal",
                        )
                    ]
                )
            elif isinstance(event, Reply):
                self._channel.send([Reply(id=event.id, error=message, error_kind="internal")])

    # -------------------------------------------------------------- reports

    def _report(self) -> list[Event]:
        self._profiling.check()
        self._changed = self._changed or self._engine.busy
        if not self._changed or self._until_report() > 0:
            return []
        self._reported = self._clock()
        self._changed = self._engine.busy
        stats = self._engine.stats()
        return [stats, *self._lease.news(stats, self._assembled.scheduler)]

    def _wait_seconds(self) -> float | None:
        """How long to wait for a command when there is nothing to compute; None: without limit."""
        if self._preparation.busy:
            return POLL_SECONDS
        return self._until_report() if self._changed else None

    def _until_report(self) -> float:
        return max(0.0, self._reported + STATS_SECONDS - self._clock())


def _begin_profile(folder: str, name: str) -> Profile:
    from turnout.runner.execution.profiler import EngineProfile  # only where one is wanted

    return EngineProfile(folder, name)


def _kind(error: RequestError) -> str:
    """The `error_kind` of the delta that ends a refused request."""
    if isinstance(error, Interrupted):
        return "internal"
    if isinstance(error, ContextExceeded):
        return "context"
    return "overloaded" if isinstance(error, Overloaded) else "invalid"
