"""Runs the server, from when its engines' processes have been started to its exit."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import Any

from turnout.config import ServerConfig
from turnout.core.errors import ConfigError, EngineError, EngineGone
from turnout.core.process import freeze_garbage, quick_turns
from turnout.server.app import create_app
from turnout.server.fleet.ab_test import check_memory, check_ready
from turnout.server.fleet.arms import Arms
from turnout.server.fleet.fleet import Fleet
from turnout.server.http.connections.http_server import HttpServer
from turnout.server.http.connections.listening import Listener
from turnout.server.signals import Signals

__all__ = ["run"]

logger = logging.getLogger(__name__)


async def run(listener: Listener, fleets: Sequence[Fleet], arms: Arms, config: ServerConfig) -> None:
    """Serve until asked to stop. `fleets` are those of the arms; the first has been configured.

    Raises EngineError when an engine cannot be assembled or no engine is left, ConfigError when an engine
    refuses its configuration or two configurations do not go together.
    """
    signals = Signals(fleets)
    try:
        await _first_of(_start(fleets, arms), signals.wait())
        if not signals.stopping:
            signals.server = HttpServer(create_app(arms, config), listener, config)
            _announce(arms, config, listener.url)
            with freeze_garbage(), quick_turns():
                await _serve(signals.server, fleets, arms, signals, config.shutdown_timeout)
    finally:
        await arms.close()


async def _start(fleets: Sequence[Fleet], arms: Arms) -> None:
    """Start the engines one after the other: each sees the memory that those before it have taken."""
    for fleet, arm in zip(fleets, arms.all, strict=True):
        if arm is not arms.first:
            fleet.configure(arm.config)
        try:
            await fleet.start()
        except EngineError as error:
            if arms.trial is None:
                raise
            raise EngineGone(f"arm {arm.name!r}: {error}") from None
        except ConfigError as error:
            raise error if arms.trial is None else ConfigError(f"arm {arm.name!r}: {error}") from None
    check_ready(arms.all)


async def _serve(
    server: HttpServer, fleets: Sequence[Fleet], arms: Arms, signals: Signals, timeout: float
) -> None:
    """Serve until asked to stop, and then for at most `timeout` seconds until the last request has ended."""
    serving = asyncio.create_task(server.serve())
    await _first_of(asyncio.wait({serving}), arms.gone(), signals.wait())
    if signals.stopping:
        if timeout and not arms.idle:
            logger.info("requests may take up to %g s to end; another signal ends them at once", timeout)
        await _first_of(asyncio.wait({serving}), arms.gone(), arms.finish(timeout))
    failure = arms.failure
    for fleet in fleets:
        fleet.refuse("the server is shutting down")
    server.should_exit = True
    await serving
    if failure is not None and not signals.stopping:
        raise EngineGone(failure)


def _announce(arms: Arms, config: ServerConfig, url: str) -> None:
    name = config.served_model_name or arms.first.client.ready.model
    _print("\n".join([*_summary(arms), f"Turnout serving {name} at {url}", ""]))


def _print(text: str) -> None:
    """Writes to standard output, whose reader may have left and whose disk may be full."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        logger.warning("standard output cannot be written (%s): %s", error.strerror, text.rstrip())
        with open(os.devnull, "wb") as nowhere:  # else Python would try again at the exit
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _summary(arms: Arms) -> Iterator[str]:
    """Lines on the engines. Raises ConfigError where their KV pools do not fit into memory together."""
    if arms.trial is None:
        yield from arms.first.client.ready.summary
        return
    for arm in arms.all:
        yield f"arm {arm.name}: {100 * arm.share:.3g}% of the sessions{_changes(arm.changes)}"
        yield from (f"  {line}" for line in arm.client.ready.summary)
    yield check_memory(arms.all)


def _changes(changes: Mapping[str, str]) -> str:
    return "".join(f", {field}={value or 'default'}" for field, value in changes.items())


async def _first_of(*works: Coroutine[Any, Any, object]) -> None:
    """Wait until one of `works` is done, and cancel the others. Raises what the first one raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
