"""A process that follows its parent: it ends when the parent's end of a pipe does, and not because of it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

FOLLOWS = "from turnout.core.process import exit_with_parent; exit_with_parent()"


def start(script: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE)


def test_it_ends_in_the_middle_of_its_work_when_the_pipe_closes() -> None:
    with start(f"{FOLLOWS}; import time; time.sleep(60)") as process:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(20) == 1


def test_it_ends_by_itself_while_the_parent_lives() -> None:
    with start(FOLLOWS) as process:
        assert process.wait(20) == 0


POOL = """
import os, signal, sys, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from turnout.core.process import exit_with_spawner

if __name__ == "__main__":
    pool = ProcessPoolExecutor(1, get_context("spawn"), exit_with_spawner)
    print(pool.submit(os.getpid).result(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_processes_of_a_pool_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    """Killed, it could not tell them."""
    (tmp_path / "pool.py").write_text(POOL)
    with subprocess.Popen([sys.executable, tmp_path / "pool.py"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        worker = int(process.stdout.readline())
    deadline = time.monotonic() + 20
    while is_running(worker):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_running(process: int) -> bool:
    """One that has ended, and that nobody has waited for, is not."""
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False
