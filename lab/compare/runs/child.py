"""A part of a comparison in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import msgspec

from turnout.core.errors import ConfigError, EngineError
from turnout.lab.compare.runs.protocol import Done, Failed, Incomparable, Judged, Message, Order, Progress

__all__ = ["Watch", "carry_out"]

Watch = Callable[[int, int], None]
"""Told how many of how many requests have ended."""


def carry_out(order: Order, arm: str, what: str, watch: Watch) -> Done | Judged | Incomparable:
    """Raises ConfigError for an arm that cannot work, EngineError for a process that broke.

    `what`: the process, for whom it is told that it did.
    """
    with _worker() as process:
        assert process.stdin is not None and process.stdout is not None
        with suppress(BrokenPipeError):  # of one that is gone: its exit code says more
            process.stdin.write(msgspec.json.encode(order) + b"\n")
            process.stdin.flush()
        for line in process.stdout:
            message: Message = msgspec.json.decode(line, type=Message)
            if isinstance(message, Progress):
                watch(message.done, message.total)
            elif isinstance(message, Failed):
                raise _failure(arm, message)
            else:
                return message
        raise EngineError(f"arm {arm!r}: {what} {_ending(process.wait())}")


@contextmanager
def _worker() -> Iterator[subprocess.Popen[bytes]]:
    """It is gone when this is left, however that is."""
    # -P: the working folder is the user's, and nothing in it may stand in for a module of ours.
    command = [sys.executable, "-P", "-m", "turnout.lab.compare.runs.worker"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _failure(arm: str, failed: Failed) -> Exception:
    kind = ConfigError if failed.asked_wrongly else EngineError
    return kind(f"arm {arm!r}: {failed.message}")


def _ending(code: int) -> str:
    return f"ended with code {code}" if code >= 0 else f"was ended by signal {-code}; was memory short?"
