"""The server's end of a channel to a worker: ZeroMQ over TCP, encrypted and authenticated with CURVE keys.

::

    server ── DEALER ═══ CURVE, TCP ═══ ROUTER ── worker ── PAIR, Unix socket ── engine

A connection serves one life of an engine: when the connection or the engine is lost, so is the link, and
another takes its place.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import msgspec
import zmq
from zmq.utils.monitor import parse_monitor_message

from turnout.core.clock import Clock, monotonic
from turnout.core.interfaces.launcher import Death, EngineAddress
from turnout.core.process import check_room
from turnout.core.types.messages import Command, Delta, Event, Submit
from turnout.core.types.messages.reading import event_reader
from turnout.core.types.request import RequestSpec, Timing
from turnout.core.version import own_version
from turnout.server.engine.remote.messages import (
    Hello,
    Kind,
    Refused,
    Sent,
    Tick,
    Welcome,
    number_and_events,
)

__all__ = ["CONNECT_SECONDS", "EVENTS", "WorkerLink", "made_pair", "secured"]

CONNECT_SECONDS = 30.0
"""How long a worker may take to answer: it may be starting, or another server may be leaving it."""
HANDSHAKE_MS = 5000
"""How long the other end may take to agree on keys."""
HEARTBEAT_MS, SILENCE_MS = 2000, 8000
"""How often each end asks whether the other is there, and how long it may be silent."""
RETRY_MS = 200
LINGER_MS = 1000
"""Time to get the last message out."""
DRIFT = 2e-4
"""By how much two clocks may run apart, in seconds a second: what crystals may have."""
GAP = "lost messages on their way"
EVENTS = (
    zmq.Event.CONNECT_RETRIED
    | zmq.Event.HANDSHAKE_FAILED_AUTH
    | zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
    | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
    | zmq.Event.DISCONNECTED
)


class WorkerLink:
    """For an event loop, as `ServerChannel`: `fds` become readable when `receive` may have something."""

    def __init__(self, address: EngineAddress, clock: Clock = monotonic) -> None:
        """Raises OSError if the system has no room for it."""
        assert address.keys is not None
        check_room()
        self.death: Death | None = None
        """How the engine, or the connection to it, was lost."""
        self._url, self._clock = address.url, clock
        self._deadline = clock() + CONNECT_SECONDS
        self._welcomed = False
        self._problem = "no worker answers there"
        self._commands = self._events = 0
        """Messages of commands that were sent, and of events that have come."""
        self._ahead = -float("inf")
        """By how much the worker's clock is ahead of this one, at least."""
        self._noted = clock()
        """When that was found."""
        self._encoder = msgspec.msgpack.Encoder()
        self._reader = event_reader()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        try:
            self._socket = secured(self._context.socket(zmq.DEALER), address.url)
            self._socket.linger = LINGER_MS
            self._socket.curve_serverkey = address.keys.worker.encode()
            self._socket.curve_publickey = address.keys.public.encode()
            self._socket.curve_secretkey = address.keys.secret.encode()
            self._monitor = self._socket.get_monitor_socket(EVENTS)
            self._socket.connect(address.url)
            self.fds = (self._socket.fileno(), self._monitor.fileno())
        except BaseException as error:
            self.close()
            if isinstance(error, zmq.ZMQError):
                raise OSError(error.errno, f"{address.url}: {error}") from error
            raise  # what a launcher gave for keys is none
        self._tell(
            Kind.HELLO, msgspec.json.encode(Hello(own_version(), address.changes, address.cpu_kernels))
        )

    def send(self, command: Command) -> None:
        """Send a command; does nothing if the worker has left."""
        if isinstance(command, Submit):
            command = Submit(self._submitted(command.request))
        self._commands += 1
        self._tell(Kind.COMMAND, self._encoder.encode(command))

    def receive(self) -> Iterator[list[Event]]:
        """Yields the events that have come so far, message by message."""
        yield from self._messages()
        self._watch()
        if not self._welcomed and self._clock() >= self._deadline:
            self._lost(f"did not let this server in within {CONNECT_SECONDS:g} s: {self._problem}")

    @property
    def left(self) -> bool:
        """The engine's last message has come: the worker tells of its death after all others."""
        return self.death is not None

    def leave(self) -> bool:
        """Tell the worker that this server leaves. False: its engine waits for the next one."""
        self._tell(Kind.BYE, b"")
        return False

    def close(self) -> None:
        with contextlib.suppress(AttributeError, zmq.ZMQError):
            self._socket.disable_monitor()
        waits = self._welcomed and self.death is None  # what is left for one that is gone never leaves
        self._context.destroy(linger=LINGER_MS if waits else 0)

    # -------------------------------------------------------------- details

    def _messages(self) -> Iterator[list[Event]]:
        while not self._socket.closed and self.death is None:
            try:
                kind, content = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            if kind == Kind.EVENTS:
                number, events = number_and_events(content)
                if number != self._events:
                    self._lost(GAP)
                    return
                self._events += 1
                yield [self._received(event) for event in self._reader.read(events)]
            else:
                self._control(kind, content)

    def _tell(self, kind: Kind, content: bytes) -> None:
        with contextlib.suppress(zmq.Again):
            self._socket.send_multipart([kind, content], zmq.NOBLOCK)

    def _control(self, kind: bytes, content: bytes) -> None:
        if kind == Kind.TICK:
            tick = msgspec.json.decode(content, type=Tick)
            self._note_clock(tick.clock)
            self._tell(Kind.SENT, msgspec.json.encode(Sent(self._commands)))
            if tick.missed or tick.events != self._events:
                self._lost(GAP)
        elif kind == Kind.WELCOME:
            welcome = msgspec.json.decode(content, type=Welcome)
            self._welcomed = True
            self._note_clock(welcome.clock)
        elif kind == Kind.DIED:
            death = msgspec.json.decode(content, type=Death)
            self.death = replace(death, how=f"of {self._url} {death.how}")
        elif kind in (Kind.REFUSED, Kind.WAIT):
            self._problem = f"the worker {msgspec.json.decode(content, type=Refused).reason}"
            if kind == Kind.REFUSED:
                self._lost(f"refused this server: {self._problem}")

    def _watch(self) -> None:
        """Notes what became of the connection."""
        while not self._socket.closed and self.death is None:
            try:
                event = int(parse_monitor_message(self._monitor.recv_multipart(zmq.NOBLOCK))["event"])
            except zmq.Again:
                return
            if event == zmq.Event.HANDSHAKE_FAILED_AUTH:
                self._lost("refused this server's key; give both the same file, by --replica-key-file")
            elif event in (zmq.Event.HANDSHAKE_FAILED_NO_DETAIL, zmq.Event.HANDSHAKE_FAILED_PROTOCOL):
                self._lost(
                    "agreed on no keys with this server: it has another file, or is no `turnout worker`"
                )
            elif event == zmq.Event.DISCONNECTED:
                self._lost("is no longer connected")

    def _lost(self, how: str) -> None:
        if self.death is None:
            self.death = Death(f"of {self._url} {how}", fault=False)

    # -------------------------------------------------------------- two clocks

    def _note_clock(self, theirs: float) -> None:
        """A message takes time, so the worker's clock is at least as far ahead as it seems; the least delay
        counts. Unless that was long ago: the clocks may have run apart since."""
        now = self._clock()
        self._ahead = max(self._ahead - DRIFT * (now - self._noted), theirs - now)
        self._noted = now

    def _submitted(self, spec: RequestSpec) -> RequestSpec:
        """A request with its times on the worker's clock."""
        arrival = None if spec.arrival is None else spec.arrival + self._ahead
        resume = spec.resume
        if resume is not None:
            first = None if resume.first_token is None else resume.first_token + self._ahead
            lost = [when + self._ahead for when in resume.interrupted]
            resume = msgspec.structs.replace(resume, first_token=first, interrupted=lost)
        return msgspec.structs.replace(spec, arrival=arrival, resume=resume)

    def _received(self, event: Event) -> Event:
        """An event with its times on this machine's clock."""
        if not isinstance(event, Delta):
            return event
        if event.timing is not None:
            event = msgspec.structs.replace(event, timing=_earlier(event.timing, self._ahead))
        if event.traced is not None:
            timing = _earlier(event.traced.timing, self._ahead)
            event = msgspec.structs.replace(
                event, traced=msgspec.structs.replace(event.traced, timing=timing)
            )
        return event


def _earlier(timing: Timing, seconds: float) -> Timing:
    def shifted(when: float | None) -> float | None:
        return None if when is None else when - seconds

    return Timing(
        arrival=timing.arrival - seconds,
        scheduled=shifted(timing.scheduled),
        first_token=shifted(timing.first_token),
        finished=shifted(timing.finished),
        preempted=[when - seconds for when in timing.preempted],
        resumed=[when - seconds for when in timing.resumed],
        chunks=[(when - seconds, tokens) for when, tokens in timing.chunks],
    )


def secured(socket: zmq.Socket[bytes], url: str) -> zmq.Socket[bytes]:
    """A socket with what both ends set: no limit of messages, and signs of life. url: `resolved`."""
    socket.set_hwm(0)
    socket.handshake_ivl = HANDSHAKE_MS
    socket.heartbeat_ivl = HEARTBEAT_MS
    socket.heartbeat_timeout = SILENCE_MS
    socket.heartbeat_ttl = SILENCE_MS
    socket.reconnect_ivl = RETRY_MS
    socket.ipv6 = "[" in url
    return socket


def made_pair() -> tuple[str, str]:
    """A new public key and its secret one."""
    public, secret = zmq.curve_keypair()
    return public.decode(), secret.decode()
