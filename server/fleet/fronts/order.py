"""What a front is told when it starts, by a line on its standard input: some of it is secret."""

from __future__ import annotations

from turnout.config import EngineConfig, ServerConfig
from turnout.config.fields import Config

__all__ = ["FrontOrder"]


class FrontOrder(Config):
    """Where a front listens, for what model, and how it reaches the fleet's process."""

    number: int
    listeners: list[int]
    """The descriptors of the sockets that listen."""
    url: str
    """What clients are given."""
    wire: str
    """The address of the fleet's end."""
    inside: str
    """The Unix socket of the requests that are passed on."""
    folder: str
    """The model's files."""
    stores_responses: bool
    """The fleet's process keeps responses."""
    name: str | None
    """The model's, for clients; None: the one that the engine says."""
    engine: EngineConfig
    server: ServerConfig
