"""A worker that something else hosts, such as a Ray actor: for a single server, with which it ends."""

from __future__ import annotations

import asyncio
import json
import tempfile
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
        try:
            with tempfile.NamedTemporaryFile("w", prefix="turnout-ranks-") as file:  # for this user alone
                keys = {"public": self.public, "secret": self._secret, "workers": hosts or {}}
                file.write(json.dumps(keys))
                file.flush()
                if hosts:
                    given = given.model_copy(update={"rank_key_file": file.name})
                worker = Worker(self._door, self._order, given, once=True)
                asyncio.run(worker.run())
        finally:
            self._door.close()
