"""Runs a worker that takes ranks, from its keys to its exit."""

from __future__ import annotations

import logging
import signal
import threading

from turnout.core.logs import LogStyle, start_logging
from turnout.core.process import stop_signals
from turnout.server.worker.door import Door
from turnout.server.worker.keys import kept_keys
from turnout.server.worker.ranks.host import ANY_SIZE, RankHost

__all__ = ["run_rank_worker"]

logger = logging.getLogger(__name__)


def run_rank_worker(listen: str, key_file: str, log: LogStyle) -> None:
    """Take ranks until Ctrl-C, SIGTERM or SIGHUP. Raises TurnoutError where the address cannot be used."""
    start_logging(log, process="worker")
    keys, made = kept_keys(key_file)
    if made:
        logger.info("made %s; copy it to the machine of rank 0 for --rank-key-file", key_file)
    door = Door(listen, keys.public, keys.secret, keys.public, ANY_SIZE)
    stopped = threading.Event()
    for number in stop_signals():
        signal.signal(number, lambda *_: stopped.set())
    try:
        logger.info("listening at %s for ranks", door.url)
        RankHost(door).run(stopped.is_set)
    finally:
        door.close()
