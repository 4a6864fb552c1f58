"""A worker that something else hosts, such as a Ray actor: for a single server, with which it ends."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping

from turnout.config import EngineConfig
from turnout.core.interfaces.launcher import EngineOrder
from turnout.core.logs import LogStyle, start_logging
from turnout.server.engine.remote.link import made_pair
from turnout.server.worker.door import Door
from turnout.server.worker.worker import Worker

__all__ = ["HostedWorker"]


class HostedWorker:
    """Listens from its construction on, and runs an engine once it is told which."""

    def __init__(self, host: str, order: EngineOrder) -> None:
        """`host`: an address of this machine that the server reaches. The secret key stays here."""
        start_logging(LogStyle(order.log_level, order.log_format), process="worker", replica=order.replica)
        self.public, self._secret = made_pair()
        self._order = order
        self._door = Door(f"tcp://{host}:*", self.public, self._secret, order.public)
        self.url = self._door.url

    def run(self, config: str, hosts: Mapping[str, str] | None = None) -> None:
        """Return when the server has left. Raises TurnoutError if the engine cannot be assembled.

        hosts: the public keys of those that take ranks elsewhere, by address.
        """
        given = EngineConfig.model_validate_json(config)
        if hosts:
            given = given.model_copy(update={"rank_key_file": self._key_file(hosts)})
        try:
            asyncio.run(Worker(self._door, self._order, given, once=True).run())
        finally:
            self._door.close()

    def _key_file(self, hosts: Mapping[str, str]) -> str:
        """Returns a path for the processes below this one. The file is in memory and has no name, so that
        nothing of the secret is left, however this process ends."""
        descriptor = os.memfd_create("turnout-keys", os.MFD_CLOEXEC)
        keys = {"public": self.public, "secret": self._secret, "workers": dict(hosts)}
        os.write(descriptor, json.dumps(keys).encode())
        return f"/proc/{os.getpid()}/fd/{descriptor}"
