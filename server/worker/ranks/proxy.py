"""Stands for a follower on another machine: a process beside rank 0, started by `Ranks`.

Rank 0 sees a process that says what the follower says, is silent when it is, and ends as it does.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
from typing import NoReturn

import msgspec
import zmq
from zmq.utils.monitor import parse_monitor_message

from turnout.core.errors import ConfigError, TurnoutError
from turnout.core.process import begin_program, exit_with_parent, ignore_stop_signals
from turnout.core.version import own_version
from turnout.plugins.launchers.addresses import resolved
from turnout.plugins.launchers.static import read_key_file
from turnout.runner.ranks.channel import Receiver, Sender
from turnout.server.engine.remote.link import CONNECT_SECONDS, EVENTS, secured
from turnout.server.worker.ranks.messages import Kind, Order

__all__ = ["main"]

LINGER_MS = 1000


def main() -> None:
    """Passes messages on until the follower has ended, or rank 0 closes its channel."""
    begin_program()
    ignore_stop_signals()
    given = _arguments()
    line = sys.stdin.buffer.readline()
    if not line:
        return  # rank 0 ended before it sent a configuration
    exit_with_parent()
    try:
        proxy = _Proxy(given)
    except TurnoutError as error:
        sys.exit(str(error))
    proxy.start(line.decode())
    proxy.run()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("rank", "size", "frames", "words"):
        parser.add_argument(f"--{name}", type=int, required=True)
    for name in ("meeting", "cores", "network", "worker", "key-file"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--beat", type=float, required=True)
    return parser.parse_args()


class _Proxy:
    def __init__(self, given: argparse.Namespace) -> None:
        """Raises ConfigError where there are no keys, or the worker's name has no address."""
        self._given = given
        self._frames = Receiver(socket.socket(fileno=given.frames))
        self._words = Sender(socket.socket(fileno=given.words))
        keys = read_key_file(given.key_file, given.worker)
        try:
            worker = resolved(given.worker)
        except OSError as error:
            raise ConfigError(f"the name in {given.worker} has no address: {error.strerror}") from None
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._host = secured(self._context.socket(zmq.DEALER), worker)
        self._host.linger = LINGER_MS
        self._host.curve_serverkey = keys.worker.encode()
        self._host.curve_publickey = keys.public.encode()
        self._host.curve_secretkey = keys.secret.encode()
        self._monitor = self._host.get_monitor_socket(EVENTS)
        self._host.connect(worker)
        self._deadline: float | None = time.monotonic() + CONNECT_SECONDS
        """Until then the other machine has to say something; None: it has."""
        self._beat_at = 0.0
        self._ending = False

    def start(self, config: str) -> None:
        given = self._given
        # Rank 0's process and port: no other engine has them as long as its ranks live.
        engine = f"{os.getppid()} at {given.network}"
        order = Order(own_version(), engine, given.rank, given.size, given.network, given.beat, config)
        self._tell(Kind.START, msgspec.json.encode(order))

    def run(self) -> NoReturn:
        poller = zmq.Poller()
        poller.register(self._host, zmq.POLLIN)
        poller.register(self._monitor, zmq.POLLIN)
        poller.register(self._frames.fileno(), zmq.POLLIN)
        while True:
            events = dict(poller.poll(self._given.beat * 1000))
            if self._frames.fileno() in events and not self._ending:
                self._pass_frames()
                if self._ending:
                    poller.unregister(self._frames.fileno())
            self._hear()
            self._watch()
            now = time.monotonic()
            if now >= self._beat_at:
                self._beat_at = now + self._given.beat
                self._tell(Kind.BEAT, b"")
            if self._deadline is not None and now >= self._deadline:
                self._exit(f"no worker answers at {self._given.worker}; `turnout worker --ranks` runs one")

    def _pass_frames(self) -> None:
        frames = self._frames.arrived()
        if frames is None:
            self._ending = True
            self._tell(Kind.END, b"")
            return
        for frame in frames:
            self._tell(Kind.FRAME, frame)

    def _hear(self) -> None:
        while True:
            try:
                kind, content = self._host.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._deadline = None
            if kind == Kind.WORD and content:
                self._words.send(content)
            elif kind == Kind.WORD:
                self._words.beat()
            elif kind == Kind.GONE and not content:
                self._exit("")
            elif kind == Kind.GONE:
                self._exit(f"the process at {self._given.worker} {content.decode()}")
            elif kind == Kind.REFUSED:
                self._exit(f"the worker at {self._given.worker} {content.decode()}")

    def _watch(self) -> None:
        """Notices what became of the connection."""
        while self._monitor.poll(0):
            event = int(parse_monitor_message(self._monitor.recv_multipart())["event"])
            if event == zmq.Event.DISCONNECTED:
                self._exit(f"the worker at {self._given.worker} is no longer connected")
            if event != zmq.Event.CONNECT_RETRIED:
                self._exit(f"the worker at {self._given.worker} has other keys; give both machines one file")

    def _tell(self, kind: Kind, content: bytes) -> None:
        self._host.send_multipart([kind, content])

    def _exit(self, why: str) -> NoReturn:
        self._host.disable_monitor()
        self._context.destroy(linger=LINGER_MS)
        sys.exit(why or 0)


if __name__ == "__main__":
    main()
