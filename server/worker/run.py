"""Runs a worker, from its keys to its exit."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from turnout.config import EngineConfig
from turnout.core.interfaces.launcher import EngineOrder
from turnout.core.logs import LogStyle, start_logging
from turnout.core.process import check_temporary_folder, stop_signals
from turnout.server.engine.client import FACTORY
from turnout.server.worker.door import Door
from turnout.server.worker.keys import kept_keys
from turnout.server.worker.worker import Worker

__all__ = ["run_worker"]

logger = logging.getLogger(__name__)


def run_worker(
    config: EngineConfig,
    listen: str,
    key_file: str,
    log: LogStyle,
    *,
    factory: str = FACTORY,
) -> None:
    """Run until Ctrl-C, SIGTERM or SIGHUP.

    Raises TurnoutError where the engine or the address cannot be used.
    """
    start_logging(log, process="worker")
    check_temporary_folder()
    keys, made = kept_keys(key_file)
    if made:
        logger.info("made %s; copy it to the server's machine for --replica-key-file", key_file)
    door = Door(listen, keys.public, keys.secret, keys.public)
    try:
        from turnout.models.hub.resolve import resolve_model

        # Here rather than in the engine, so that a download is visible and can be ended by Ctrl-C.
        resolve_model(config.model, revision=config.revision)
        logger.info("listening at %s", door.url)
        worker = Worker(door, EngineOrder(factory, log.level, log_format=log.form), config)
        with suppress(asyncio.CancelledError):
            asyncio.run(_until_signalled(worker))
    finally:
        door.close()


async def _until_signalled(worker: Worker) -> None:
    task = asyncio.ensure_future(worker.run())
    for number in stop_signals():
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    await task
