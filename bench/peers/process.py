"""A peer's worker: a process that serves jobs when it is told to, and how much memory it takes."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import click
import psutil
from peers.environments import environment, tail

__all__ = ["Job", "Worker"]

Job = tuple[list[int], int]
"""Prompt and how many tokens to generate."""


class Worker:
    """Raises ClickException, with the end of what the process wrote, when it ends early."""

    def __init__(self, name: str, command: list[str], variables: dict[str, str], log: Path) -> None:
        self.name = name
        self._log = log
        started = time.perf_counter()
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment(variables),
                cwd=log.parent,  # where no folder of ours passes for a package of theirs
            )
        self._answer()
        self.run([([1, 2, 3], 1)])
        self.first_token = time.perf_counter() - started
        """Seconds from starting the process."""

    def run(self, jobs: list[Job]) -> float:
        """Serve all of `jobs` at once; seconds until the last token."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(jobs) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self._fail()
        answer = self._answer()
        assert answer is not None
        seconds, tokens = answer
        asked = sum(output for _, output in jobs)
        if tokens != asked:
            raise click.ClickException(f"{self.name} generated {tokens} tokens instead of {asked}")
        return seconds

    @property
    def memory(self) -> int:
        """Bytes that it and its children hold."""
        process = psutil.Process(self._process.pid)
        return sum(each.memory_info().rss for each in (process, *process.children(recursive=True)))

    def stop(self) -> None:
        """The process ends at the end of its input, or is killed."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _answer(self) -> list[float] | None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._fail()
        answer: list[float] | None = json.loads(line)
        return answer

    def _fail(self) -> None:
        code = self._process.wait()
        raise click.ClickException(
            f"{self.name} ended with exit code {code}; {self._log} ends with:\n{tail(self._log)}"
        )
