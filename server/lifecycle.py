"""Runs the server, from when its engines' processes have been started to its exit."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from turnout.config import ServerConfig
from turnout.core.errors import ConfigError, EngineError, EngineGone
from turnout.core.logs import logs_json
from turnout.core.process import freeze_garbage, quick_turns
from turnout.runner.memory.host_memory import free_host_memory
from turnout.server.app import create_app
from turnout.server.engine.client import SHUTTING_DOWN
from turnout.server.fleet.ab_test import check_memory, check_ready
from turnout.server.fleet.arms import Arms, ServedArm
from turnout.server.fleet.fronts.fronts import Fronts
from turnout.server.fleet.models.hosted_model import HostedModel
from turnout.server.fleet.models.memory import check_pools
from turnout.server.fleet.models.models import Models
from turnout.server.http.connections.http_server import HttpServer
from turnout.server.http.connections.listening import BACKLOG, Listener
from turnout.server.signals import Signals

__all__ = ["http_server", "run"]

logger = logging.getLogger(__name__)


async def run(listener: Listener, models: Models, config: ServerConfig, fronts: Fronts | None = None) -> None:
    """Serve until asked to stop. The first fleet may have been configured.

    fronts: the processes that take the connections, if they are not for this one.
    Raises EngineError when an engine cannot be assembled or no engine is left, ConfigError when an engine
    refuses its configuration or two configurations do not go together.
    """
    signals = Signals(models.fleets)
    try:
        await _first_of(_start(models), signals.wait())
        if not signals.stopping:
            signals.server = server = http_server(listener, models, config, fronts)
            if fronts is not None:
                await _first_of(fronts.start(), signals.wait())
            if not signals.stopping:
                _announce(models, listener.url)
            with freeze_garbage(), quick_turns():
                await _serve(server, models, signals, config.shutdown_timeout, fronts)
    finally:
        if fronts is not None:
            await fronts.close()
        await models.close()


def http_server(
    listener: Listener, models: Models, config: ServerConfig, fronts: Fronts | None
) -> HttpServer:
    """What serves HTTP in this process: clients, or else what fronts pass on."""
    if fronts is None:
        return HttpServer(create_app(models, config), listener, config)
    inside = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    inside.bind(fronts.inside)
    inside.listen(BACKLOG)
    return HttpServer(create_app(models, config, fronts=fronts), Listener([inside], listener.url), config)


async def _start(models: Models) -> None:
    """Start the engines one after the other: each sees the memory that those before it have taken."""
    awake = [model for model in models.all if model.loaded]
    for model in awake:
        for arm in model.arms.all:
            with _naming(*_place(models, model, arm)):
                if not arm.client.configured:
                    arm.client.configure(arm.config)
                await arm.client.start()
        check_ready(model.arms.all)
    if models.alone is None:
        pools = {model.name: model.arms.first.client.ready.host_memory for model in awake}
        check_pools(pools, free_host_memory())


def _place(models: Models, model: HostedModel, arm: ServedArm) -> Iterator[str]:
    """What an error is to name: nothing where there is one engine configuration."""
    if models.alone is None:
        yield f"model {model.given_name!r}"
    if model.arms.trial is not None:
        yield f"arm {arm.name!r}"


@contextmanager
def _naming(*place: str) -> Iterator[None]:
    """Adds the place to an engine's error."""
    try:
        yield
    except (EngineError, ConfigError) as error:
        if not place:
            raise
        kind = ConfigError if isinstance(error, ConfigError) else EngineGone
        raise kind(": ".join((*place, str(error)))) from None


async def _serve(
    server: HttpServer, models: Models, signals: Signals, timeout: float, fronts: Fronts | None
) -> None:
    """Serve until asked to stop, and then for at most `timeout` seconds until the last request has ended."""
    serving = asyncio.create_task(server.serve())
    await _first_of(asyncio.wait({serving}), models.gone(), signals.wait())
    if signals.stopping:
        if timeout and not (models.idle and (fronts is None or fronts.idle)):
            logger.info("requests may take up to %g s to end; another signal ends them at once", timeout)
        await _first_of(asyncio.wait({serving}), models.gone(), _finish(models, timeout, fronts))
    failure = models.failure
    models.refuse(SHUTTING_DOWN)
    if fronts is not None:
        await fronts.stop()
    server.should_exit = True
    await serving
    if failure is not None and not signals.stopping:
        raise EngineGone(failure)


async def _finish(models: Models, timeout: float, fronts: Fronts | None) -> None:
    """Take no more requests; return when the last one has ended, or after `timeout` seconds."""
    if fronts is None:
        await models.finish(timeout)
        return
    fronts.close_doors()
    await asyncio.gather(models.finish(timeout), fronts.finish(timeout))


def _announce(models: Models, url: str) -> None:
    lines = [line for model in models.all for line in _of_model(model, named=models.alone is None)]
    names = ", ".join(model.name for model in models.all)
    last = f"Turnout serving {names} at {url}"
    if logs_json():
        logger.info(last, extra={"fields": {"url": url, "summary": lines}})
    else:
        _print("\n".join([*lines, last, ""]))


def _of_model(model: HostedModel, *, named: bool) -> Iterator[str]:
    if named:
        yield f"model {model.name}:"
    if not model.loaded:
        yield f"{'  ' * named}loaded by its first request"
        return
    yield from (f"{'  ' * named}{line}" for line in _summary(model.arms))


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
