"""The engine's process, by itself."""

from __future__ import annotations

import subprocess
import sys


def test_without_a_channel_it_ends_with_a_line() -> None:
    """Where an address is wrong, or no descriptor is left for a socket."""
    command = [
        sys.executable,
        "-m",
        "turnout.server.engine.main",
        "nonsense://there",
        "--factory",
        "none:none",
    ]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "the engine has no channel to the server: Protocol not supported" in done.stderr
    assert len(done.stderr.splitlines()) == 1
