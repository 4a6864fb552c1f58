"""The socket at which a worker listens, over TCP, for servers that have its keys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import zmq

from turnout.core import limits
from turnout.core.errors import ConfigError
from turnout.plugins.launchers.addresses import resolved
from turnout.server.engine.remote.link import secured
from turnout.server.worker.keys import ZAP_DOMAIN, admitting

__all__ = ["Door"]

LINGER_MS = 500
"""Time to get the last message out."""


class Door:
    """For an event loop: `fd` becomes readable when `messages` may have some, once for each change."""

    def __init__(
        self,
        listen: str,
        public: str,
        secret: str,
        admits: str,
        most: int = limits.WORKER_MESSAGE.whole,
    ) -> None:
        """`admits`: the public key of servers. `most`: bytes of a message; -1: any number.

        Raises ConfigError if `listen` is no address of here.
        """
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._guard = admitting(self._context, admits)
        with suppress(OSError):  # it may name an interface instead
            listen = resolved(listen)
        self._socket = secured(self._context.socket(zmq.ROUTER), listen)
        self._socket.router_mandatory = True  # sending says whether a server is there
        self._socket.linger = LINGER_MS
        self._socket.maxmsgsize = most
        self._socket.curve_server = True
        self._socket.curve_publickey = public.encode()
        self._socket.curve_secretkey = secret.encode()
        self._socket.zap_domain = ZAP_DOMAIN.encode()
        try:
            self._socket.bind(listen)
        except zmq.ZMQError as error:
            self.close()
            raise ConfigError(
                f"--listen {listen}: {error}; expected tcp://HOST:PORT, free and of here"
            ) from None
        self.url = self._socket.get_string(zmq.LAST_ENDPOINT).rstrip("\0")
        self.fd = self._socket.fileno()

    def send(self, server: bytes, kind: bytes, content: bytes) -> bool:
        """False: the server is no longer connected."""
        try:
            self._socket.send_multipart([server, kind, content], zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                return False
            raise
        return True

    def messages(self) -> Iterator[tuple[bytes, bytes, bytes]]:
        """The sender, kind and content of those that have come."""
        while not self._socket.closed:
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            if len(frames) == 3:
                yield frames[0], frames[1], frames[2]

    def close(self) -> None:
        self._guard.stop()
        self._context.destroy(linger=LINGER_MS)
