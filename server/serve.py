"""Running a server: what happens in which order, from the port to the exit code."""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from turnout.core.config import EngineConfig, ServerConfig
from turnout.core.errors import TurnoutError
from turnout.server.engine_client import FACTORY, ProcessClient

__all__ = ["serve"]

BACKLOG = 2048


def serve(engine_config: EngineConfig, server_config: ServerConfig, *, factory: str = FACTORY) -> int:
    """Serve until Ctrl-C or SIGTERM; returns the exit code, 0.

    Raises TurnoutError when it cannot start, or when the engine dies. The engine's process comes first,
    because its imports and the model's weights take longest: everything else happens meanwhile.
    """
    logging.basicConfig(level=server_config.log_level.upper(), format="%(levelname)s %(name)s: %(message)s")
    with _listen(server_config.host, server_config.port) as listener, _terminable():
        client = ProcessClient(
            factory=factory, log_level=server_config.log_level, restarts=server_config.engine_restarts
        )
        try:
            _serve(listener, client, engine_config, server_config)
        except KeyboardInterrupt:
            pass  # before the event loop took over
        finally:
            client.kill()
    return 0


def _serve(
    listener: socket.socket, client: ProcessClient, engine_config: EngineConfig, server_config: ServerConfig
) -> None:
    from turnout.models.resolve import resolve_model

    # Here rather than in the engine, so that a download is seen, and ended by Ctrl-C.
    folder = resolve_model(engine_config.model, revision=engine_config.revision)
    client.configure(engine_config)

    import asyncio

    from turnout.server.running import run
    from turnout.text.tokenizer import load_tokenizer

    asyncio.run(run(listener, client, load_tokenizer(folder), server_config))


def _listen(host: str, port: int) -> socket.socket:
    """Bound at once: who finds the port taken should not have waited for a model."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise TurnoutError(
            f"cannot listen on {host} port {port}: {reason}; choose another with --port"
        ) from None
    except UnicodeError as error:  # from Python's own look at the name
        raise TurnoutError(f"{host!r} is no name of a host: {error}; choose another with --host") from None


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends us as Ctrl-C does, until the event loop takes both over."""
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
