"""Something else hosts what takes ranks, such as a Ray actor."""

from __future__ import annotations

from turnout.core.interfaces.launcher import EngineOrder
from turnout.core.logs import LogStyle, start_logging
from turnout.server.engine.remote.link import made_pair
from turnout.server.worker.door import Door
from turnout.server.worker.ranks.host import ANY_SIZE, RankHost

__all__ = ["HostedRanks"]


class HostedRanks:
    """Takes ranks of an engine that something else hosts on another machine."""

    def __init__(self, host: str, order: EngineOrder) -> None:
        """`host`: an address of this machine that the engine reaches; `order.public`: the engine's key."""
        start_logging(LogStyle(order.log_level, order.log_format), process="worker", replica=order.replica)
        self.public, secret = made_pair()
        self._door = Door(f"tcp://{host}:*", self.public, secret, order.public, ANY_SIZE)
        self.url = self._door.url

    def run(self) -> None:
        """Take ranks until the process ends."""
        RankHost(self._door).run(lambda: False)
