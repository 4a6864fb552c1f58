"""A process that follows its parent: it ends when the parent's end of a pipe does, and not because of it."""

from __future__ import annotations

import subprocess
import sys

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
