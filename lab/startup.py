"""Measures how long a server takes to start: from the command to its first token."""

from __future__ import annotations

import asyncio
import re
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

import aiohttp

from turnout.core.errors import EngineError, describe_error
from turnout.lab.load.address import connector, http_url

__all__ = ["Startup", "measure_startup"]

PROGRAM = "from turnout.cli.main import main; main()"
GREETING = re.compile(r" at (https?://\S+|unix:.+)$")


@dataclass(frozen=True)
class Startup:
    """In seconds from starting the process."""

    ready: float
    """Until the server says that it serves."""
    first_token: float
    """Until the first request's first token came, as soon as it is ready."""


def measure_startup(arguments: Sequence[str], timeout: float) -> Startup:
    """Start ``turnout serve`` with `arguments` in a new process, ask for one token, and stop it.

    Files stay in the operating system's memory: only the first of several starts reads them from disk.
    Raises EngineError, with what the server said, where it does not start within `timeout` seconds.
    """
    key = secrets.token_urlsafe()  # beside those that the arguments, a file or the environment may name
    late = threading.Event()
    with tempfile.TemporaryFile("w+") as errors:
        # In its own session: a Ctrl-C is ours, and we stop it.
        command = [sys.executable, "-c", PROGRAM, "serve", *arguments, "--port", "0", "--api-key", key]
        started = time.perf_counter()
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        ) as server:

            def give_up() -> None:
                late.set()
                server.kill()

            watchdog = threading.Timer(timeout, give_up)
            watchdog.start()
            try:
                url = _url(server, errors)
                ready = time.perf_counter() - started
                _first_token(url, key, timeout)
                return Startup(ready, time.perf_counter() - started)
            except EngineError:
                if late.is_set():
                    raise EngineError(
                        f"turnout serve gave no token within {timeout:g} s, the --timeout"
                    ) from None
                raise
            finally:
                watchdog.cancel()
                server.terminate()


def _url(server: subprocess.Popen[str], errors: IO[str]) -> str:
    """Waits until the server prints its address."""
    assert server.stdout is not None
    for line in server.stdout:
        if found := GREETING.search(line.rstrip()):
            return found[1]
    code = server.wait()
    errors.seek(0)
    said = errors.read().strip()[-2000:].removeprefix("Error: ") or "it said nothing"
    raise EngineError(f"turnout serve ended with exit code {code} before it served: {said}")


def _first_token(url: str, key: str, timeout: float) -> None:
    try:
        asyncio.run(_first_bytes(url, key, timeout))
    except (aiohttp.ClientError, OSError, EOFError) as error:  # OSError: TimeoutError, too
        raise EngineError(f"turnout serve at {url} gave no first token: {describe_error(error)}") from None


async def _first_bytes(url: str, key: str, timeout: float) -> None:
    """Raises EOFError for an answer without any. The server was started here: its name needs no check."""
    body = {"prompt": [5, 6, 7, 8], "max_tokens": 1, "ignore_eos": True, "stream": True}
    headers = {"Authorization": f"Bearer {key}"}
    limit = aiohttp.ClientTimeout(total=timeout)
    async with (
        aiohttp.ClientSession(timeout=limit, raise_for_status=True, connector=connector(url)) as session,
        session.post(f"{http_url(url)}/v1/completions", json=body, headers=headers, ssl=False) as response,
    ):
        if not await response.content.readany():
            raise EOFError("the answer is empty")
