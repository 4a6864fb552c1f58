"""The server's client of an engine in a process of its own, which survives the death of that process.

The server knows what each client has received. So when the engine's process dies, another process takes its
place, and every request goes on after the last token that was delivered: there, or on another engine that
takes it over meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from turnout.config import EngineConfig
from turnout.core import limits
from turnout.core.clock import monotonic
from turnout.core.errors import ConfigError, EngineGone, Overloaded, TurnoutError
from turnout.core.interfaces.launcher import Death, EngineOrder, Launcher
from turnout.core.logs import LogStyle, about
from turnout.core.types.block_events import AllBlocksCleared, BlockEvent
from turnout.core.types.live.news import EngineNews
from turnout.core.types.messages import (
    Abort,
    AdminCommand,
    Command,
    Delta,
    Event,
    Failed,
    LoadProgress,
    PromptScores,
    Ready,
    Reply,
    Stats,
    Submit,
    Watch,
)
from turnout.core.types.request import RequestSpec
from turnout.plugins.launchers.local import Local
from turnout.server.engine.admin_journal import AdminJournal
from turnout.server.engine.agreement import difference
from turnout.server.engine.next_engine import NextEngine
from turnout.server.engine.process import EngineProcess
from turnout.server.engine.replies import Replies
from turnout.server.engine.streams.request_stream import RequestStream
from turnout.server.engine.streams.request_streams import RequestStreams
from turnout.server.engine.streams.restart_limit import RestartLimit

__all__ = ["FACTORY", "SHUTTING_DOWN", "Place", "ProcessClient"]

logger = logging.getLogger(__name__)

FACTORY = "turnout.runner.assembly:build_engine"
"""Builds the engine in its process: called with an EngineConfig, returns an AssembledEngine."""

SHUTTING_DOWN = "the server is shutting down"

GRACE_SECONDS = 2.0
"""Time for the engine to leave when told to; longer than most steps."""
NOTABLE_SILENCE = 2.0
"""Seconds without a word of the engine that are told to those who are refused."""


class Place(NamedTuple):
    """The worker whose engine is used."""

    worker: str = ""
    """Its address; empty: none, the launcher decides where the engine runs."""
    changes: str = ""
    """What rollouts changed of the worker's configuration: as `EngineOrder.changes`."""


class ProcessClient:
    """Starts the process when constructed; everything else happens in one event loop.

    ::

        client = ProcessClient()        # the process starts importing
        client.configure(config)        # and now loads the model
        await client.start()            # until the engine is ready
        ...
        await client.close()
    """

    def __init__(
        self,
        *,
        factory: str = FACTORY,
        log: LogStyle = LogStyle(),  # noqa: B008 - it is immutable
        restarts: int = 0,
        arm: str = "",
        replica: str = "",
        place: Place | None = None,
        journal: AdminJournal | None = None,
        launcher: Launcher | None = None,
    ) -> None:
        """`journal`: what every engine is told that starts, shared with other clients. `launcher`: None for
        `Local`. `place`: None: the launcher decides.

        Raises OSError if the system has no room for a process.
        """
        self._launcher = launcher or Local()
        place = place or Place()
        self._order = EngineOrder(
            factory, log.level, replica, arm, place.worker, changes=place.changes, log_format=log.form
        )
        self._process = EngineProcess(self._launcher, self._order)
        self.elsewhere: Callable[[RequestStream], bool] = _nowhere
        """Asked to have a request served by another engine when this one has died; False: there is none."""
        self.hear_of_block: Callable[[BlockEvent], None] = _ignore
        """Told of what comes into the engine's KV memory and goes, if the journal says so."""
        self.hear_news: Callable[[EngineNews], None] = _ignore
        """Told what the engine does while it is watched."""
        self._restart_limit = RestartLimit(restarts)
        self._config: EngineConfig | None = None
        self._most_requests = 0
        self._next = NextEngine(self._start_process, self._give_up_waiting)
        self._journal = AdminJournal() if journal is None else journal
        self.streams = RequestStreams(self._journal.event_interval)
        """The requests that clients wait for."""
        self._replies = Replies(self._journal.note)
        self._ready: asyncio.Future[Ready] | None = None
        self._serving = False
        self._cause: Failed | None = None
        """What the engine reported before it died."""
        self._gone = asyncio.Event()
        self._heard = 0.0
        """When the engine last sent anything."""
        self.stats: Stats | None = None
        self.progress: float | None = None
        """Which part of its weights an engine that starts has loaded, from 0 to 1; None: it has not told."""
        self.failure: str | None = None
        self.dismissed = False
        """Its `failure` is none of the engine: it was told to take no more requests."""

    @property
    def pid(self) -> int | None:
        """The process's id; None where it runs on another machine."""
        return self._process.pid

    @property
    def place(self) -> str:
        """Where the engine runs, as ``--replica`` names it; empty: where the launcher decides."""
        return self._order.place

    @property
    def ready(self) -> Ready:
        assert self._ready is not None and self._ready.done(), "start() has not returned yet"
        return self._ready.result()

    @property
    def ranks(self) -> int:
        """How many processes compute together; 0: not known yet."""
        return self.ready.ranks if self._started else 0

    @property
    def restarting(self) -> bool:
        """The engine has died, and another one is starting."""
        return self._started and not self._serving and self.failure is None

    @property
    def _started(self) -> bool:
        """An engine has served."""
        ready = self._ready
        return ready is not None and ready.done() and not ready.cancelled() and ready.exception() is None

    @property
    def restarts(self) -> int:
        """How many engines have died and been replaced."""
        return self._restart_limit.count

    @property
    def silence(self) -> float:
        """As `EngineClient.silence` says."""
        since = [stream.spec.arrival or 0.0 for stream in self.streams.unfinished]
        if not since or not self._serving:
            return 0.0
        return monotonic() - max(self._heard, min(since))

    @property
    def idle(self) -> bool:
        """The engine has nothing to do: all its answers have come, though not all may have been taken."""
        return not self.streams.unfinished and not self._replies

    # -------------------------------------------------------------- start and end

    def configure(self, config: EngineConfig) -> None:
        """Tell the engine what to build."""
        self._config = config
        self._most_requests = config.max_waiting + config.max_num_seqs
        self._process.configure(config.model_dump_json())

    async def start(self) -> Ready:
        """Wait until the engine is assembled.

        Raises EngineError if it cannot be assembled, ConfigError if the configuration is the reason.
        """
        self._ready = asyncio.get_running_loop().create_future()
        self._process.listen(self._on_event, self._on_exit)
        return await self._ready

    def take_over(self, ready: Ready) -> None:
        """Start in place of an engine that said `ready`: as after its death, which requests can wait for, and
        tried again where it does not come."""
        self._ready = asyncio.get_running_loop().create_future()
        self._ready.set_result(ready)
        self._next.expect()
        self._process.listen(self._on_event, self._on_exit)

    async def gone(self) -> None:
        """Return when the engine is gone for good; `failure` then says why."""
        await self._gone.wait()

    def refuse(self, reason: str, kind: type[TurnoutError] = EngineGone) -> None:
        """End all requests with `reason`, and take no more. `start`, if it still waits, raises a `kind`."""
        if self.failure is None:
            self.failure = reason
        self.streams.fail(EngineGone(reason))
        self._replies.fail(reason)
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(kind(reason))
        self._next.cancel()

    def dismiss(self, reason: str) -> None:
        """As `refuse`, where the server or its operator wants it so, and the engine has not failed."""
        self.dismissed = self.dismissed or self.failure is None
        self.refuse(reason)

    async def close(self, reason: str = SHUTTING_DOWN) -> None:
        """Stop the process, by request if it serves, and clean up; what is asked of it then gets `reason`."""
        self.dismiss(reason)
        self._gone.set()
        await self._process.stop(GRACE_SECONDS if self._serving else 0)

    def kill(self) -> None:
        """Stop the process at once. Needs no event loop."""
        self._restart_limit.forbid()
        self._process.kill()

    # -------------------------------------------------------------- requests

    @property
    def room(self) -> bool:
        """Whether the engine may be given another request, now or once it has been replaced."""
        return self.failure is None and not self._next.overdue and len(self.streams) < self._most_requests

    def check(self) -> None:
        """Raise EngineGone if the engine is gone, Overloaded if it may be given no other request now."""
        self._check()
        if len(self.streams) >= self._most_requests:
            raise Overloaded(self._too_many())
        if self._next.overdue:
            raise Overloaded("the engine died, and another one is not ready yet; try again later")

    def attach(self, stream: RequestStream) -> None:
        """Have a request served, from where the engine that had it before has left it."""
        self._submit(self.streams.add(stream))  # an engine that is starting gets it when it is ready

    def detach(self, stream: RequestStream) -> None:
        """Have a request served no longer; nothing more comes of it."""
        id = stream.spec.id
        self.streams.remove(id)
        if not stream.over:
            self._send(Abort(id))
        self._submit(self.streams.next_suspects(id))  # what ended it may have been no delta

    def abort(self, request_id: str, index: int | None = None) -> None:
        """As `EngineClient.abort` says."""
        stream = self.streams.get(request_id)
        if stream is not None:
            stream.abort(index)
            if not self._serving:
                stream.end_if_complete()
        self._send(Abort(request_id, index, timing=stream is not None and stream.awaits_timing))

    def watch(self, seconds: float, *, anew: bool) -> None:
        """Have the engine tell what it does, for so long. anew: with everything told again."""
        self._send(Watch(seconds, anew))

    async def admin(self, command: AdminCommand) -> Reply:
        """As `EngineClient.admin` says."""
        self._check()
        if self.restarting:
            raise EngineGone("the engine is being restarted; ask again")
        return await self._replies.to(command, self._send)

    def _too_many(self) -> str:
        """The engine would say so too. But one that hangs or restarts says nothing."""
        silence = self.silence
        state = ""
        if self.restarting:
            state = ", and the engine is being restarted"
        elif silence > NOTABLE_SILENCE:
            state = f", and the engine was last heard of {silence:.0f} s ago"
        return (
            f"{len(self.streams)} requests are waiting or running, the most that --max-waiting and "
            f"--max-num-seqs allow{state}; retry later"
        )

    def _check(self) -> None:
        if self.failure is not None:
            raise EngineGone(self.failure)

    def _submit(self, requests: Iterable[RequestSpec]) -> None:
        for request in requests:
            self._send(Submit(request))

    def _send(self, command: Command) -> None:
        if self._serving:
            self._process.send(command)

    # -------------------------------------------------------------- events

    def _on_event(self, event: Event) -> None:
        self._heard = monotonic()
        if isinstance(event, Delta):
            self._on_delta(event)
        elif isinstance(event, PromptScores):
            self._on_prompt_scores(event)
        elif isinstance(event, Stats):
            self.stats = event
            self._submit(self.streams.when_late())
        elif isinstance(event, Reply):
            self._replies.take(event)
        elif isinstance(event, EngineNews):
            self.hear_news(event)
        elif isinstance(event, BlockEvent):
            self.hear_of_block(event)
        else:
            self._on_start(event)

    def _on_start(self, event: LoadProgress | Ready | Failed) -> None:
        if isinstance(event, LoadProgress):
            self.progress = event.part
        elif isinstance(event, Failed):
            self._cause = event
            if event.final or not self._started:
                self.refuse(event.message, ConfigError if event.bad_config else EngineGone)
        else:
            self._on_ready(event)

    def _on_prompt_scores(self, event: PromptScores) -> None:
        if (stream := self.streams.get(event.request_id)) is not None:
            stream.add_prompt_scores(event.scores)

    def _on_delta(self, delta: Delta) -> None:
        stream = self.streams.get(delta.request_id)
        if stream is None:
            return
        stream.deliver(delta)
        self.streams.progressed = True
        if suspects := self.streams.next_suspects(delta.request_id):
            self._submit(suspects)

    def _on_ready(self, ready: Ready) -> None:
        """An engine is assembled: the first one, or one that takes over."""
        assert self._ready is not None
        if self._ready.done() and (other := difference(self._ready.result(), ready)):
            self._process.give_up(f"cannot take over: it {other}")
            return
        self._process.connected()
        self._serving = True
        self._next.came()
        for command in self._journal.commands():
            self._send(command)
        if not self._ready.done():
            self._ready.set_result(ready)
            if ready.cpu_kernels and self._config is not None:  # so that a later engine gives the same tokens
                self._config = self._config.model_copy(update={"cpu_kernels": ready.cpu_kernels})
            return
        logger.warning("another engine has taken over; %d requests go on", len(self.streams))
        self._submit(self.streams.hand_over())

    # -------------------------------------------------------------- when the engine dies

    def _on_exit(self, death: Death) -> None:
        cause, self._cause = self._cause, None
        reason = cause.message if cause else f"the engine process {death.how}"
        served, self._serving = self._serving, False
        self.hear_of_block(AllBlocksCleared())
        if self._gone.is_set():
            return
        fault = death.fault or cause is not None
        counts = fault and not (served and self.streams.explains_death)
        if served:
            self._find_killer(death, fault=fault, counts=counts, reason=reason)
        moved = self._moved()
        final = cause is not None and cause.final
        if self._started and self.failure is None and not final and self._restart_limit.allow(counts=counts):
            self._start_another(reason, moved)
        else:
            self.refuse(reason)
            self._gone.set()

    def _find_killer(self, death: Death, *, fault: bool, counts: bool, reason: str) -> None:
        """Find the request that kills engines, if one does; the deaths that it caused count no more.

        Unless no request was served since another was found: then the engine is at fault itself.
        """
        progressed = self.streams.progressed
        killer = self.streams.interrupt(fault=fault, reason=reason, begun=death.begun)
        if counts:
            for stream in self.streams.suspects:
                stream.counted_by.append(self._restart_limit)
        if killer is not None:
            with about(killer.spec.log_id):
                logger.error(
                    "request %s was alone in %d engines that died", killer.spec.id, killer.certain_deaths
                )
            for limit in killer.counted_by if progressed else ():
                limit.forgive(1)

    def _moved(self) -> list[RequestStream]:
        """What other engines have taken over, since it need not wait for the next one here."""
        moved = [stream for stream in self.streams.movable() if self.elsewhere(stream)]
        for stream in moved:
            self.streams.remove(stream.spec.id)
        return moved

    def _start_another(self, reason: str, moved: Sequence[RequestStream]) -> None:
        pause = self._restart_limit.pause
        waiting = len(self.streams.unfinished)
        logger.error("%s; starting another engine in %g s for %d requests", reason, pause, waiting)
        self._replies.fail(f"{reason}; it is being restarted, ask again")
        self._next.begin(pause, moved if self._launcher.shares_machine else ())

    def _start_process(self) -> None:
        """Raises OSError, TurnoutError."""
        if self.failure is not None or self._gone.is_set() or not self._restart_limit.open:
            return
        assert self._config is not None
        process = EngineProcess(self._launcher, self._order)
        try:
            process.configure(self._config.model_dump_json())
        except TurnoutError:
            process.kill()
            raise
        self._process = process
        process.listen(self._on_event, self._on_exit)

    def _give_up_waiting(self) -> None:
        """Ends the requests that wait for the next engine; those that come later are refused."""
        seconds = limits.RESTART_WAIT.whole
        self.streams.fail(EngineGone(f"the engine died, and no other was ready within {seconds} seconds"))


def _ignore(_: object) -> None:
    pass


def _nowhere(_: RequestStream) -> bool:
    return False
