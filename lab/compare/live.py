"""Runs on real engines, each in a fresh process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

from turnout.core.errors import ConfigError, EngineError
from turnout.lab.compare.order import Turn
from turnout.lab.compare.protocol import Done, Failed, Message, Progress, Task
from turnout.lab.compare.question import Question
from turnout.lab.compare.run import Run

__all__ = ["Live", "Watch"]

Watch = Callable[[int, int], None]
"""Told how many of how many requests have ended."""


@dataclass(frozen=True)
class Live:
    """Makes the runs of a question."""

    question: Question

    def run(self, turn: Turn, watch: Watch) -> Run:
        """Raises ConfigError for an arm that cannot work, EngineError for a run that broke."""
        with _worker() as process:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(msgspec.json.encode(self._task(turn)) + b"\n")
            process.stdin.flush()
            for line in process.stdout:
                message: Message = msgspec.json.decode(line, type=Message)
                if isinstance(message, Progress):
                    watch(message.done, message.total)
                elif isinstance(message, Done):
                    return message.run
                else:
                    raise _failure(turn, message)
            code = process.wait()
            raise EngineError(
                f"arm {turn.arm.name!r}: the process of repeat {turn.repeat + 1} {_ending(code)}"
            )

    def _task(self, turn: Turn) -> Task:
        question, config = self.question, turn.arm.config
        return Task(
            arm=turn.arm.name,
            repeat=turn.repeat,
            config=config.model_dump(mode="json", exclude_unset=True),
            workload=question.workload,
            seed=question.seed + turn.repeat,
            warm_up=question.warm_up,
            temperature=question.asked_temperature,
        )


@contextmanager
def _worker() -> Iterator[subprocess.Popen[bytes]]:
    """It is gone when this is left, however that is."""
    # -P: the working folder is the user's, and nothing in it may stand in for a module of ours.
    command = [sys.executable, "-P", "-m", "turnout.lab.compare.worker"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _failure(turn: Turn, failed: Failed) -> Exception:
    kind = ConfigError if failed.asked_wrongly else EngineError
    return kind(f"arm {turn.arm.name!r}: {failed.message}")


def _ending(code: int) -> str:
    return f"ended with code {code}" if code >= 0 else f"was ended by signal {-code}; was memory short?"
