"""The engine's own process: ``python -m turnout.server.engine.main ADDRESS``.

The configuration comes as one line of JSON on standard input, which then stays open for as long as the parent
process lives. So the imports, which take seconds, run while the parent is still looking for the model.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
from collections.abc import Callable
from threading import Thread
from typing import NoReturn

import zmq

from turnout.config import EngineConfig
from turnout.core.errors import (
    ConfigError,
    NoRoom,
    PluginError,
    PolicyError,
    TurnoutError,
    as_no_room,
    describe_error,
)
from turnout.core.loading_progress import progress_to
from turnout.core.logs import LogStyle, start_logging
from turnout.core.plugin_faults import blamed, fault_message, plugin_errors
from turnout.core.process import (
    begin_program,
    check_room,
    exit_with_parent,
    freeze_garbage,
    ignore_stop_signals,
    no_collections,
)
from turnout.core.types.messages import Failed, LoadProgress
from turnout.server.engine.admin_commands import Assembled
from turnout.server.engine.channel import EngineChannel
from turnout.server.engine.loop import EngineLoop

__all__ = ["main"]

logger = logging.getLogger(__name__)


def main() -> None:
    """Serve one end of the socket until told to stop."""
    begin_program()
    given = _arguments()
    log = LogStyle(given.log_level, given.log_format)
    start_logging(log, process="engine", arm=given.arm, replica=given.replica)
    ignore_stop_signals()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    with context, _channel(context, given.address) as channel:
        try:
            with progress_to(lambda part: channel.send([LoadProgress(part)])):
                assembled = _assemble(given.factory)
        except plugin_errors(KeyboardInterrupt) as error:  # a plugin's: Ctrl-C is ignored
            bad_config = isinstance(error, ConfigError) and not isinstance(error, NoRoom)
            _fail(channel, error, final=bad_config and not _may_pass(error), bad_config=bad_config)
        if assembled is None:
            return
        assembled.engine.locate(arm=given.arm, replica=given.replica)
        try:
            channel.send([assembled.ready])
            Thread(target=assembled.engine.warm_up, name="warm-up", daemon=True).start()
            with freeze_garbage():
                EngineLoop(assembled, channel, begun=given.begun).run()
        except plugin_errors(KeyboardInterrupt) as error:  # a plugin's: Ctrl-C is ignored
            _fail(channel, error, final=isinstance(error, PolicyError))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="turnout.server.engine.main")
    parser.add_argument("address")
    parser.add_argument("--factory", required=True, help="what builds the engine, as MODULE:FUNCTION")
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--log-format", default="text")
    parser.add_argument("--arm", default="", help="the arm of a live A/B test, for observers")
    parser.add_argument("--replica", default="", help="the name among its replicas, for observers")
    parser.add_argument("--begun", type=int, help="the descriptor of a file for the requests that are begun")
    return parser.parse_args()


def _channel(context: zmq.Context[zmq.Socket[bytes]], address: str) -> EngineChannel:
    """The channel to the server. Without it the process ends: nothing else could hear why."""
    try:
        check_room()
        return EngineChannel(context, address)
    except (zmq.ZMQError, OSError) as error:
        logger.critical("the engine has no channel to the server: %s", error)
        sys.exit(1)


def _assemble(factory: str) -> Assembled | None:
    """Build the engine; None if the parent has gone without sending a configuration."""
    with as_no_room("the engine"):
        build = _import(factory)
        line = sys.stdin.buffer.readline()
        if not line:
            return None
        exit_with_parent()
        return build(EngineConfig.model_validate_json(line))


def _may_pass(error: BaseException) -> bool:
    """Whether an error at the start may be gone at the next one, though the configuration stays the same.

    Those of a plugin, and whatever the system had no room for, no descriptor or no file.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, NoRoom | PluginError | OSError | MemoryError):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _fail(channel: EngineChannel, error: BaseException, *, final: bool, bad_config: bool = False) -> NoReturn:
    channel.send([Failed(_explain(error), final=final, bad_config=bad_config)])
    sys.exit(1)


def _import(factory: str) -> Callable[[EngineConfig], Assembled]:
    module, _, name = factory.partition(":")
    with no_collections():
        build: Callable[[EngineConfig], Assembled] = getattr(importlib.import_module(module), name)
    return build


def _explain(error: BaseException) -> str:
    """The message for the server, with the plugin that is to blame, if one is.

    Errors that are not Turnout's own are also logged, with a traceback.
    """
    by_plugin = isinstance(error, PluginError) and error.__cause__ is not None
    if by_plugin or not isinstance(error, TurnoutError):
        logger.error("the engine failed", exc_info=error)
        if not by_plugin and (plugin := blamed(error)) is not None:
            return fault_message(plugin.title, plugin.method, error)
    return describe_error(error)


if __name__ == "__main__":
    main()
