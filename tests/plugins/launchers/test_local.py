"""Engines of one machine are told their numbers, by which they divide its NUMA nodes."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest
from running_server import eventually

from turnout.core.interfaces.launcher import EngineOrder
from turnout.core.process import STOP_SIGNALS
from turnout.plugins.launchers.local import Local, LocalEngine

KEEP = "import sys; line = sys.stdin.readline(); open(sys.argv[1], 'w').write(line); sys.stdin.read()"


class Keeping(Local):
    """In place of engines, processes that write down what they are told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def command(self, order: EngineOrder, url: str) -> Sequence[str]:
        return [sys.executable, "-c", KEEP, str(self.folder / order.replica)]

    def engine(self, name: str) -> LocalEngine:
        return self.launch(EngineOrder("somewhere:make", "error", replica=name))

    def told(self, name: str) -> dict[str, object]:
        file = self.folder / name
        eventually(lambda: file.exists() and file.read_text().endswith("\n"), 30)
        return json.loads(file.read_text())


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Keeping]:
    yield Keeping(tmp_path)


def test_engines_that_share_the_machine_are_numbered_and_a_number_that_is_free_is_given_again(
    launcher: Keeping,
) -> None:
    config = json.dumps({"model": "m", "cpu_engines": 2})
    first, second = launcher.engine("a"), launcher.engine("b")
    first.configure(config)
    second.configure(config)
    assert launcher.told("a") == {"model": "m", "cpu_engines": 2, "cpu_engine": 0}
    assert launcher.told("b") == {"model": "m", "cpu_engines": 2, "cpu_engine": 1}
    first.kill()
    third = launcher.engine("c")
    first.kill()  # an engine may be killed twice
    fourth = launcher.engine("d")
    for engine in (third, fourth):
        engine.configure(config)
    assert [launcher.told(name)["cpu_engine"] for name in "cd"] == [0, 2]
    for engine in (second, third, fourth):
        engine.kill()


@pytest.mark.parametrize(
    "config", [{"model": "m"}, {"cpu_engines": 1}, {"cpu_engines": 2, "cpu_engine": 5}], ids=str
)
def test_an_engine_alone_or_numbered_by_its_user_is_told_nothing_more(
    launcher: Keeping, config: dict[str, object]
) -> None:
    engine = launcher.engine("a")
    engine.configure(json.dumps(config))
    assert launcher.told("a") == config
    engine.kill()


def test_an_engine_that_still_imports_takes_no_notice_of_ctrl_c(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A terminal sends it to all processes. Previously engines that had just begun wrote tracebacks."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2] / "support"), prepend=os.pathsep)
    engine, stops = Local().launch(EngineOrder("echo_engine:build", "error")), set(STOP_SIGNALS)
    for number in stops:
        os.kill(engine.pid, number)

    def ignores() -> bool:
        """In what it starts itself they are not blocked then."""
        return stops <= signals(engine.pid, "SigIgn") and not stops & signals(engine.pid, "SigBlk")

    eventually(lambda: engine.death.done() or ignores(), 60)
    assert not engine.death.done()
    engine.kill()
    assert "SIGKILL" in engine.death.result(10).how
    assert not capfd.readouterr().err


def test_an_engine_that_no_thread_can_watch_is_ended(
    monkeypatch: pytest.MonkeyPatch, launcher: Keeping
) -> None:
    """A RuntimeError, which nothing that starts engines expects, left its process behind."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    before = set(psutil.Process().children())  # of other tests' servers
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(BlockingIOError):
        launcher.engine("a")
    assert not launcher.numbers
    assert set(psutil.Process().children()) <= before


def signals(pid: int, kind: str) -> set[int]:
    """Those of a set that Linux tells of a process, as a mask."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    mask = next(int(line.split()[1], 16) for line in lines if line.startswith(kind))
    return {number for number in range(1, 65) if mask >> (number - 1) & 1}
