"""A peer's server: a process that answers OpenAI's requests over HTTP, and what clients see of it."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from http.client import HTTPException
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

import click
from peers.environments import environment, tail

from turnout.lab.jobs.prompts import Prompts
from turnout.lab.load.generator import run_load
from turnout.lab.load.target import Target
from turnout.lab.results.summary import Summary, summarize
from turnout.lab.workloads.source import load_workload

__all__ = ["Server", "free_port"]

POLL = 0.2
"""Seconds between requests that find out whether the server is up."""
DIRECT = build_opener(ProxyHandler({}))


class Server:
    """Raises ClickException, with the end of what the process wrote, when it ends early."""

    def __init__(
        self, name: str, command: list[str], variables: dict[str, str], log: Path, port: int
    ) -> None:
        self.name = name
        self._log = log
        with log.open("w") as out:
            self._process = subprocess.Popen(
                command, stdout=out, stderr=out, env=environment(variables), cwd=log.parent
            )
        self.clients = 0.0
        """Of one core's time in the last load, the share that the clients had."""
        self.model = self._model(f"http://127.0.0.1:{port}/v1/models")
        self._target = Target.at(f"127.0.0.1:{port}", model=self.model)

    @property
    def pid(self) -> int:
        return self._process.pid

    def play(self, workload: str, seed: int) -> Summary:
        """Send `workload` at its times, and wait for the last answer."""
        load = load_workload(workload, seed)
        run = run_load(load, self._target, Prompts(load.jobs, seed))
        summary = summarize(run.records, run.duration)
        self.clients = run.cpu / run.duration
        if summary.failed or run.interrupted:
            errors = {record.error for record in run.records if record.error}
            raise click.ClickException(f"{self.name} failed {summary.failed} requests: {errors}")
        for warning in run.warnings:
            click.echo(f"{self.name}: {warning}", err=True)
        return summary

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _model(self, url: str) -> str:
        """The model that the server serves, as soon as it does."""
        while self._process.poll() is None:
            try:
                with DIRECT.open(url, timeout=5) as answer:
                    return str(json.load(answer)["data"][0]["id"])
            except (OSError, HTTPException):  # not there yet
                pass
            time.sleep(POLL)
        code = self._process.returncode
        raise click.ClickException(
            f"{self.name} ended with exit code {code}; {self._log} ends with:\n{tail(self._log)}"
        )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
