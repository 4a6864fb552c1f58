"""A worker that something else hosts, such as a Ray actor: for a single server, with which it ends."""

from __future__ import annotations

import asyncio

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
        self.public, secret = made_pair()
        self._order = order
        self._door = Door(f"tcp://{host}:*", self.public, secret, order.public)
        self.url = self._door.url

    def run(self, config: str) -> None:
        """Return when the server has left. Raises TurnoutError if the engine cannot be assembled."""
        try:
            worker = Worker(self._door, self._order, EngineConfig.model_validate_json(config), once=True)
            asyncio.run(worker.run())
        finally:
            self._door.close()
