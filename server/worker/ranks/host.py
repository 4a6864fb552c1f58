"""A worker that takes ranks of engines elsewhere, of any models: ``turnout worker --ranks``."""

from __future__ import annotations

import logging
import selectors
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from turnout.core.clock import monotonic
from turnout.core.meeting import Meeting
from turnout.core.version import own_version
from turnout.runner.ranks.followers import Follower
from turnout.runner.ranks.processes import FOLLOWER
from turnout.runner.ranks.silence import TIMING, Silence, Timing
from turnout.server.worker.door import Door
from turnout.server.worker.ranks.frame_queue import FrameQueue
from turnout.server.worker.ranks.messages import Kind, Order

__all__ = ["ANY_SIZE", "RankHost"]

logger = logging.getLogger(__name__)

ENDING_SECONDS = 2.0
ANY_SIZE = -1
"""Of messages of rank 0: the frame of a step has the tokens of each sequence that begins in it."""


@dataclass(eq=False)
class _Rank:
    """A follower here, and the proxy that it is for."""

    server: bytes
    order: Order
    follower: Follower
    frames: FrameQueue
    proxy: Silence
    told_to_end: bool = False
    until: float | None = None
    """When its follower, which has closed its channel, is ended if it has not ended itself; None: it has not
    closed it."""


class RankHost:
    """Starts followers for proxies, and passes on what both say."""

    def __init__(self, door: Door, timing: Timing = TIMING, module: str = FOLLOWER) -> None:
        self._door, self._timing, self._module = door, timing, module
        self._ranks: dict[bytes, _Rank] = {}
        self._meetings: dict[str, Meeting] = {}
        """Of engines that have ranks here."""
        self._sent = True
        """Whether something was sent since messages were looked for: that may hide that some have come."""
        self._selector = selectors.DefaultSelector()
        self._selector.register(door.fd, selectors.EVENT_READ)

    def run(self, over: Callable[[], bool]) -> None:
        """Serves until `over` says so; then no follower is left."""
        try:
            while not over():
                self._turn()
        finally:
            for rank in list(self._ranks.values()):
                rank.follower.kill()
                self._tell(rank.server, Kind.GONE, b"was ended, as its worker was")
                self._forget(rank)
            self._selector.close()

    def _turn(self) -> None:
        wait = 0.0 if self._sent else self._timing.beat
        self._sent = False
        for key, _ in self._selector.select(wait):
            if isinstance(key.data, _Rank) and key.data.server in self._ranks:
                self._pass_errors(key.data)
        for server, kind, content in self._door.messages():
            self._hear(server, kind, content)
        for rank in list(self._ranks.values()):
            self._pass_words(rank)
            if rank.server in self._ranks and rank.proxy.too_long():
                logger.error("rank %d is ended: its engine is silent", rank.order.rank)
                rank.follower.kill()
                self._forget(rank)

    # -------------------------------------------------------------- from proxies

    def _hear(self, server: bytes, kind: bytes, content: bytes) -> None:
        rank = self._ranks.get(server)
        if rank is None:
            if kind == Kind.START:
                self._start(server, content)
            return
        rank.proxy.heard()
        if kind == Kind.FRAME:
            rank.frames.put(content)
        elif kind == Kind.END:
            rank.told_to_end = True
            rank.frames.end()

    def _start(self, server: bytes, content: bytes) -> None:
        try:
            order = msgspec.json.decode(content, type=Order)
        except msgspec.DecodeError as error:
            logger.warning("what a server says is left out: it is no order: %s", error)
            return
        if order.version != own_version():
            why = f"is of Turnout {own_version()}, and rank 0 of {order.version}; install the same version"
            self._tell(server, Kind.REFUSED, why.encode())
            return
        try:
            rank = self._begun(server, order)
        except OSError as error:
            self._tell(server, Kind.REFUSED, f"has no room for a process: {error}".encode())
            self._leave_meeting(order.engine)
            return
        logger.info("rank %d of %d has begun, for an engine at %s", order.rank, order.size, order.network)
        self._tell(server, Kind.BEGUN, b"")
        rank.proxy.heard()
        self._ranks[server] = rank
        follower = rank.follower
        self._selector.register(follower.words, selectors.EVENT_READ)
        assert follower.process is not None
        assert follower.process.stderr is not None
        self._selector.register(follower.process.stderr, selectors.EVENT_READ, rank)

    def _begun(self, server: bytes, order: Order) -> _Rank:
        """Starts a follower. Raises OSError where the system has no room for it."""
        meeting = self._meetings.get(order.engine) or Meeting.on_this_machine()
        self._meetings[order.engine] = meeting
        timing = self._timing._replace(beat=order.beat)
        network = [f"--network={order.network}"]
        follower = Follower(self._module, order.rank, order.size, meeting, timing, network)
        try:
            follower.start(order.config)
            return _Rank(server, order, follower, FrameQueue(follower.frames), Silence(timing))
        except OSError:
            follower.kill()
            follower.close()
            raise

    # -------------------------------------------------------------- from followers

    def _pass_words(self, rank: _Rank) -> None:
        if rank.until is None:
            words = rank.follower.words.arrived()
            for word in words or ():
                self._tell(rank.server, Kind.WORD, word)
            if words is not None:
                return
            self._selector.unregister(rank.follower.words)
            rank.until = monotonic() + (self._timing.exiting if rank.told_to_end else ENDING_SECONDS)
        if not rank.follower.ended and monotonic() < rank.until:
            return
        how = rank.follower.end(0)
        logger.info("rank %d %s", rank.order.rank, how)
        self._tell(rank.server, Kind.GONE, b"" if rank.told_to_end else how.encode())
        self._forget(rank)

    def _pass_errors(self, rank: _Rank) -> None:
        process = rank.follower.process
        assert process is not None
        assert process.stderr is not None
        if not rank.follower.pass_on_errors():
            self._selector.unregister(process.stderr)

    def _tell(self, server: bytes, kind: Kind, content: bytes) -> None:
        self._sent = True
        self._door.send(server, kind, content)

    def _forget(self, rank: _Rank) -> None:
        process = rank.follower.process
        assert process is not None
        for file in (rank.follower.words, process.stderr):
            with suppress(KeyError, ValueError):
                self._selector.unregister(file)  # type: ignore[arg-type]
        self._ranks.pop(rank.server, None)
        rank.frames.close()
        rank.follower.close()
        self._leave_meeting(rank.order.engine)

    def _leave_meeting(self, engine: str) -> None:
        """Lets go of where an engine's ranks meet, if it has none left here."""
        left = any(other.order.engine == engine for other in self._ranks.values())
        if not left and (meeting := self._meetings.pop(engine, None)) is not None:
            meeting.close()
