"""Carries out a part of a comparison in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import msgspec

from turnout.core.errors import ConfigError, EngineError
from turnout.lab.compare.runs.protocol import (
    Incomparable,
    Message,
    Order,
    QualityResult,
    RunDone,
    RunFailed,
    RunProgress,
)

__all__ = ["RunWatch", "carry_out"]

RunWatch = Callable[[int, int], None]
"""Called with the number of requests that have ended, and of all requests."""


def carry_out(order: Order, arm: str, what: str, watch: RunWatch) -> RunDone | QualityResult | Incomparable:
    """Raises ConfigError for an arm that cannot work, EngineError for a process that broke.

    `what`: the name of the process, for the message of that error.
    """
    with _worker() as process:
        assert process.stdin is not None and process.stdout is not None
        with suppress(BrokenPipeError):  # of one that is gone: its exit code says more
            process.stdin.write(msgspec.json.encode(order) + b"\n")
            process.stdin.flush()
        for line in process.stdout:
            message: Message = msgspec.json.decode(line, type=Message)
            if isinstance(message, RunProgress):
                watch(message.done, message.total)
            elif isinstance(message, RunFailed):
                raise _failure(arm, message)
            else:
                return message
        raise EngineError(f"arm {arm!r}: {what} {_ending(process.wait())}")


@contextmanager
def _worker() -> Iterator[subprocess.Popen[bytes]]:
    """The worker process; it is killed when the block is left, however that is."""
    # -P: the working folder is the user's, and nothing in it may stand in for a module of ours.
    command = [sys.executable, "-P", "-m", "turnout.lab.compare.runs.worker"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _failure(arm: str, failed: RunFailed) -> Exception:
    kind = ConfigError if failed.is_config_error else EngineError
    return kind(f"arm {arm!r}: {failed.message}")


def _ending(code: int) -> str:
    return f"ended with code {code}" if code >= 0 else f"was ended by signal {-code}; was memory short?"
