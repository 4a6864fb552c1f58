"""Programs whose standard streams were closed when they began, as some supervisors start them."""

from __future__ import annotations

import socket
import subprocess
import sys

import httpx
import pytest
from running_server import eventually

OPENS = """
import os, socket, subprocess, sys
from turnout.core.process import begin_program

begin_program()
number = socket.socket().fileno()
print("said"), print("said", file=sys.stderr), sys.stdin.read()
child = subprocess.run([sys.executable, "-c", "import sys; sys.exit(None in (sys.stdout, sys.stderr))"])
sys.exit(child.returncode or int(number < 3))
"""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_lead_nowhere_and_no_socket_has_their_descriptor(closed: str) -> None:
    command = ["sh", "-c", f'exec "$0" -c "$1" {closed}', sys.executable, OPENS]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


OFFLINE = """
from turnout import LLM, SamplingParams

LLM(kv_memory="32MiB").generate(["a"], SamplingParams(max_tokens=2), progress=True)
"""


def test_an_llm_shows_no_progress_where_standard_error_is_closed() -> None:
    """The streams of a user's program are left alone."""
    command = ["sh", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, OFFLINE]
    assert subprocess.run(command, check=False, timeout=60).returncode == 0


@pytest.mark.parametrize("closed", [">&-", "2>&-"])
def test_a_server_serves_with_a_closed_stream(closed: str) -> None:
    """It loaded its model, and then died of the stream that was None."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    script = f'exec "$0" -m turnout serve --kv-memory 32MiB --port {port} {closed}'
    server = subprocess.Popen(["sh", "-c", script, sys.executable])

    def serves() -> bool:
        assert server.poll() is None, "the server has ended"
        try:
            return httpx.get(f"http://127.0.0.1:{port}/health", timeout=60).status_code == 200
        except httpx.ConnectError:
            return False

    try:
        eventually(serves, 60)
        answer = httpx.post(
            f"http://127.0.0.1:{port}/v1/completions", json={"prompt": "a", "max_tokens": 2}, timeout=60
        )
        assert answer.status_code == 200
    finally:
        server.terminate()
        assert server.wait(30) == 0
