"""All fronts of a server: started, started again when one dies, told what they need, and ended."""

from __future__ import annotations

import asyncio
import logging
import math
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from turnout.config import EngineConfig, ServerConfig
from turnout.core.clock import monotonic
from turnout.core.errors import ConfigError, TurnoutError
from turnout.core.interfaces.launcher import Death
from turnout.core.process import check_temporary_folder
from turnout.core.types.messages import Ready
from turnout.plugins.launchers.local import MAX_PATH_BYTES
from turnout.server.fleet.fleet import Fleet
from turnout.server.fleet.fronts.front import Front
from turnout.server.fleet.fronts.messages import CloseDoors, Describe
from turnout.server.fleet.fronts.order import FrontOrder
from turnout.server.fleet.fronts.served import ServedFront
from turnout.server.http.access.keys import Keys
from turnout.server.http.connections.listening import Listener
from turnout.server.http.load import ServerLoad

__all__ = ["Fronts", "check_api_workers"]

logger = logging.getLogger(__name__)

STOP_SECONDS = 5.0
"""How long a front may take to end: longer than clients get to read the rest of their responses."""
LOOK_SECONDS = 0.25
"""How often to look whether the fleet has changed."""
POLL_SECONDS = 0.02
"""How often to look whether fronts have answered all requests."""
STEADY_SECONDS, LONGEST_PAUSE_SECONDS = 10.0, 30.0
"""A front that ends sooner is started again after a pause, which doubles each time."""


class Fronts:
    """`--api-workers` processes that take connections from the same sockets, for the fleet of this one."""

    def __init__(
        self,
        fleet: Fleet,
        listener: Listener,
        model: Path,
        name: str | None,
        engine: EngineConfig,
        server: ServerConfig,
        summed: Callable[[Sequence[bytes]], bytes],
    ) -> None:
        """Starts the processes. Raises OSError if the system has no room for them.

        model: the folder of its files. name: as clients give it; None: the one that the engine says. summed:
        makes one of what several have measured.
        """
        self._fleet, self._count = fleet, server.api_workers
        self._listener = listener
        self._folder = Path(tempfile.mkdtemp(prefix="turnout-"))  # readable by this user alone
        self.inside = str(self._folder / "inside")
        """The Unix socket at which this process answers what fronts pass on."""
        self._order = partial(
            FrontOrder,
            listeners=[each.fileno() for each in listener.sockets],
            url=listener.url,
            inside=self.inside,
            folder=str(model),
            stores_responses=server.response_store is not None,
            name=name,
            engine=engine,
            server=_share_of(server),
        )
        self._starts = 0
        self._keys: Keys | None = None
        self._load: ServerLoad | None = None
        self._told: tuple[Ready, int] | None = None
        self._up = self._stopping = False
        self._quick_deaths: dict[int, int] = {}
        """How often in a row a front has ended soon after its start, by its number."""
        self._summed = summed
        self._lost = b""
        """What fronts have measured that have ended, summed."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._all: list[Front] = []
        try:
            self._all += (self._launched(number) for number in range(self._count))
        except OSError:
            self.kill()
            raise

    # -------------------------------------------------------------- start and end

    def serve(self, keys: Keys, load: ServerLoad) -> None:
        """Note what counts for all fronts together."""
        self._keys, self._load = keys, load

    async def start(self) -> None:
        """Return when all take connections. Raises TurnoutError where one has ended before."""
        for front in self._all:
            self._listen(front)
        self._in_background(self._describe())
        await asyncio.gather(*(front.serves for front in self._all if front.serves is not None))
        self._up = True

    def close_doors(self) -> None:
        """Have all refuse the requests that come from now on."""
        self._stopping = True
        for front in self._all:
            front.tell(CloseDoors())

    async def finish(self, seconds: float) -> None:
        """Return when all requests of clients have been answered, or after `seconds`."""
        until = monotonic() + seconds
        while not self.idle and monotonic() < until:
            await asyncio.sleep(POLL_SECONDS)

    @property
    def idle(self) -> bool:
        """No front has a request that it has not answered."""
        return not any(front.served is not None and front.served.answering.requests for front in self._all)

    async def stop(self) -> None:
        """End all, once their clients have what has come."""
        self._stopping = True
        self._listener.close()  # else connections would still wait for one that takes them
        await asyncio.gather(*(front.stop(STOP_SECONDS) for front in self._all))

    def kill(self) -> None:
        """End all at once. Needs no event loop."""
        self._stopping = True
        for front in self._all:
            front.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def close(self) -> None:
        """End all, and clean up."""
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.to_thread(self.kill)
        for front in self._all:
            front.close()

    # -------------------------------------------------------------- what they have measured

    async def measured(self) -> list[bytes]:
        """What all have measured, those that have ended too, as `figures_of` writes it.

        One that is just starting has measured nothing.
        """
        told = await asyncio.gather(*(front.measure() for front in self._all))
        return [*filter(None, (*told, self._lost))]

    # -------------------------------------------------------------- one of them

    def _launched(self, number: int) -> Front:
        self._starts += 1
        return Front(self._order(number=number, wire=f"ipc://{self._folder}/{self._starts}"))

    def _listen(self, front: Front) -> None:
        assert self._keys is not None and self._load is not None
        front.served = ServedFront(self._fleet, self._keys, self._load, front.tell)
        front.listen(partial(self._greet, front), partial(self._on_end, front))

    def _greet(self, front: Front) -> None:
        if self._told is not None:
            front.tell(Describe(*self._told))
        if self._stopping:
            front.tell(CloseDoors())

    def _on_end(self, front: Front, death: Death) -> None:
        front.close()
        assert front.serves is not None
        if not front.serves.done() and not self._stopping:
            front.serves.set_exception(
                TurnoutError(f"API worker {front.number} {death.how} before it served")
            )
            front.serves.exception()  # one that is started again is waited for by nothing
        if self._stopping or not self._up:
            return
        if front.figures:
            self._lost = self._summed([*filter(None, (self._lost, front.figures))])
            front.figures = b""  # it is among the others until another has taken its place
        quick = self._quick_deaths.get(front.number, 0) + 1
        self._quick_deaths[front.number] = quick if monotonic() - front.started < STEADY_SECONDS else 0
        pause = min(LONGEST_PAUSE_SECONDS, 2.0 ** (self._quick_deaths[front.number] - 1))
        pause = pause if self._quick_deaths[front.number] else 0.0
        logger.error("API worker %d %s; starting another in %g s", front.number, death.how, pause)
        self._in_background(self._replace(front, pause))

    async def _replace(self, front: Front, pause: float) -> None:
        while True:
            await asyncio.sleep(pause)
            try:
                new = self._launched(front.number)
                break
            except OSError as error:
                pause = LONGEST_PAUSE_SECONDS
                logger.error(
                    "API worker %d cannot be started: %s; trying again in %g s", front.number, error, pause
                )
        self._all[self._all.index(front)] = new
        self._listen(new)
        assert new.serves is not None
        with suppress(TurnoutError):  # else `_on_end` has it started again
            await new.serves
            logger.info("API worker %d serves again", new.number)

    async def _describe(self) -> None:
        """Tells fronts what the fleet is, which rollouts and commands change."""
        while True:
            now = self._fleet.ready, len(self._fleet.replicas)
            if self._told is None or now[0] is not self._told[0] or now[1] != self._told[1]:
                self._told = now
                for front in self._all:
                    front.tell(Describe(*now))
            await asyncio.sleep(LOOK_SECONDS)

    def _in_background(self, work: asyncio._CoroutineLike[None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _share_of(server: ServerConfig) -> ServerConfig:
    """The configuration of one front: its part of what all have together, and none of what others keep."""
    workers = server.api_workers
    return server.model_copy(
        update={
            "request_memory": server.request_memory // workers,
            "max_connections": math.ceil(server.max_connections / workers),
            "response_store": None,
            "batch_dir": None,
            "otlp_metrics_endpoint": None,
        }
    )


def check_api_workers(server: ServerConfig, *, models: bool) -> None:
    """Raises TurnoutError for what several processes cannot serve; `models`: several of them."""
    if server.api_workers == 1:
        return
    check_temporary_folder()
    if len(f"{tempfile.gettempdir()}/turnout-12345678/inside".encode()) > MAX_PATH_BYTES:
        raise TurnoutError(
            f"the path of the folder for temporary files, {tempfile.gettempdir()}, is too long for the "
            "sockets of --api-workers; set TMPDIR to a shorter one"
        )
    refused = {
        "several models": models,
        "--ab": bool(server.ab),
        "--lazy": server.lazy,
        "--unload-after": server.unload_after is not None,
        "--max-connections-per-address": server.max_connections_per_address is not None,
    }
    for what, given in refused.items():
        if given:
            raise ConfigError(
                f"--api-workers {server.api_workers} does not go together with {what}; leave out one"
            )
