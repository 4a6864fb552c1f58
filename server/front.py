"""The main program of a front: a process that serves HTTP for a fleet in another process.

It answers what takes time, such as conversations: it reads them, turns text into tokens and tokens into
events. Everything else is passed on to the fleet's process, which knows it: ``/admin``, ``/metrics``, what is
stored.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import sys
from functools import partial
from pathlib import Path
from typing import cast

from turnout.core.logs import LogStyle, start_logging
from turnout.core.process import (
    begin_program,
    exit_with_parent,
    freeze_garbage,
    ignore_stop_signals,
    quick_turns,
)
from turnout.core.types.messages import Delta
from turnout.server.api.context import Context
from turnout.server.api.metrics import own_figures
from turnout.server.app import FrontParts, create_app
from turnout.server.fleet.arms import Arms
from turnout.server.fleet.fleet import Fleet
from turnout.server.fleet.fronts.messages import (
    Begin,
    CloseDoors,
    Describe,
    FrontMessage,
    Here,
    KeyAdmitted,
    KeyRefused,
    Load,
    Measure,
    Measured,
    OwnerMessage,
    Stop,
)
from turnout.server.fleet.fronts.order import FrontOrder
from turnout.server.fleet.fronts.remote import RemoteFleet, RemoteKeys
from turnout.server.fleet.fronts.wire import Wire
from turnout.server.fleet.models.models import Models
from turnout.server.http.connections.http_server import HttpServer
from turnout.server.http.connections.listening import Listener
from turnout.server.http.connections.tls import certificates
from turnout.server.http.load import ServerLoad
from turnout.text.tokenizer import load_tokenizer

__all__ = ["main"]

MEASURE_SECONDS = 2.0
"""How often a front tells its metrics unasked: if it dies, later ones are lost."""


def main() -> None:
    begin_program()
    ignore_stop_signals()
    if not (line := sys.stdin.buffer.readline()):
        return
    order = FrontOrder.model_validate_json(line)
    sockets = Path(order.inside).parent
    exit_with_parent(partial(shutil.rmtree, sockets, ignore_errors=True))
    style = LogStyle(order.server.log_level, order.server.log_format)
    start_logging(style, process="server", api_worker=str(order.number))
    asyncio.run(_Program(order).run())


class _Program:
    """A front, from its first message to its last."""

    def __init__(self, order: FrontOrder) -> None:
        self._order = order
        self._wire: Wire[FrontMessage, OwnerMessage] = Wire(order.wire, OwnerMessage, bind=False)
        self._fleet, self._keys = RemoteFleet(self._wire.send), RemoteKeys(self._wire.send)
        self._load = ServerLoad()
        self._load.changed = self._tell_load
        self._load_told = True
        self._context: Context | None = None
        self._measured = b""
        self._described, self._stop = asyncio.Event(), asyncio.Event()
        self._models: Models | None = None
        self._closing = False

    async def run(self) -> None:
        order = self._order
        tokenizer = load_tokenizer(Path(order.folder), order.engine.chat_template)
        self._wire.listen(self._hear)
        self._wire.send(Here())
        await self._described.wait()
        fleet = cast("Fleet", self._fleet)  # it has all that is asked of a fleet here
        arms = Arms.of_one(fleet, tokenizer, order.engine)
        models = self._models = Models.of_one(arms, order.name, order.server.model_aliases)
        self._close_doors()
        parts = FrontParts(self._load, self._keys.usage, order.inside, order.stores_responses)
        app = create_app(models, order.server, front=parts)
        self._context = app.state.context
        sockets = [socket.socket(fileno=each) for each in order.listeners]
        listener = Listener(sockets, order.url, certificates(order.server))
        server = HttpServer(app, listener, order.server)
        with freeze_garbage(), quick_turns():
            serving = asyncio.create_task(server.serve())
            measuring = asyncio.create_task(self._measure_now_and_then())
            stopping = asyncio.create_task(self._stop.wait())
            while not server.started and not serving.done():
                await asyncio.sleep(0.001)
            self._wire.send(Begin())
            await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
            server.should_exit = True
            await serving
            measuring.cancel()
        self._measure(asked=False)
        await asyncio.sleep(0)
        self._wire.close(linger=1000)

    def _hear(self, message: OwnerMessage) -> None:
        if isinstance(message, Delta):
            self._fleet.hear(message)
        elif isinstance(message, KeyAdmitted | KeyRefused):
            self._keys.hear(message)
        elif isinstance(message, Measure):
            self._measure(asked=True)
        elif isinstance(message, CloseDoors):
            self._closing = True
            self._close_doors()
        elif isinstance(message, Stop):
            self._stop.set()
        else:
            self._fleet.hear(message)
            if isinstance(message, Describe):
                self._described.set()

    def _close_doors(self) -> None:
        if self._models is not None and self._closing:
            for model in self._models.all:
                model.arms.closing = True

    # -------------------------------------------------------------- what it tells

    def _tell_load(self) -> None:
        """Tells the load at the end of this turn of the event loop."""
        if self._load_told:
            self._load_told = False
            asyncio.get_running_loop().call_soon(self._tell_load_now)

    def _tell_load_now(self) -> None:
        self._load_told = True
        self._wire.send(Load(self._load.requests, self._load.waiting))

    def _measure(self, *, asked: bool) -> None:
        figures = b"" if self._context is None else own_figures(self._context)
        if asked or figures != self._measured:
            self._measured = figures
            self._wire.send(Measured(figures, asked))

    async def _measure_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(MEASURE_SECONDS)
            self._measure(asked=False)


if __name__ == "__main__":
    main()
