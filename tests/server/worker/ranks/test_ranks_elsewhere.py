"""Ranks on other machines: what rank 0 sees of them, and what becomes of them, over loopback addresses."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import msgspec
import psutil
import pytest

from turnout.config import EngineConfig
from turnout.core.errors import RankLost
from turnout.core.version import own_version
from turnout.runner.ranks import followers, processes
from turnout.runner.ranks.hosts import RankHosts
from turnout.runner.ranks.processes import Ranks
from turnout.runner.ranks.silence import Timing
from turnout.server.worker.door import Door
from turnout.server.worker.keys import kept_keys
from turnout.server.worker.ranks.host import RankHost
from turnout.server.worker.ranks.messages import Kind, Order

FAKES = Path(__file__).parents[3] / "runner" / "ranks"
TIMING = Timing(beat=0.1, silent=4.0, exiting=1.0)
RUN = """
import signal, sys, threading
from turnout.server.worker.door import Door
from turnout.server.worker.keys import kept_keys
from turnout.server.worker.ranks.host import ANY_SIZE, RankHost
from turnout.runner.ranks.silence import Timing
from turnout.server.worker.keys import kept_keys
keys, _ = kept_keys(sys.argv[2])
door = Door(sys.argv[1], keys.public, keys.secret, keys.public, ANY_SIZE)
stopped = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stopped.set())
print(door.url, flush=True)
RankHost(door, Timing(*map(float, sys.argv[3].split())), "fake_follower").run(stopped.is_set)
door.close()
"""


class Machine:
    """A worker that takes ranks."""

    def __init__(self, address: str, keys: Path) -> None:
        timing = " ".join(map(str, TIMING))
        command = [sys.executable, "-c", RUN, f"tcp://{address}:*", str(keys), timing]
        self.process = psutil.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        assert re.fullmatch(r"tcp://[\d.]+:\d+", self.url)

    def followers(self) -> list[psutil.Process]:
        return [each for each in self.process.children() if each.status() != psutil.STATUS_ZOMBIE]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Machine]]:
    paths = (str(FAKES), str(Path(__file__).parent), os.environ.get("PYTHONPATH", ""))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    started: list[Machine] = []

    def start(address: str) -> Machine:
        started.append(Machine(address, tmp_path / "keys"))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.wait()
        assert each.process.stdout is not None
        each.process.stdout.close()


def begun(keys: Path, *machines: Machine, each: int = 1) -> Ranks:
    config = EngineConfig(model="toy", rank_key_file=str(keys))
    size = each * (1 + len(machines))
    hosts = RankHosts(tuple(machine.url for machine in machines), each)
    return Ranks.start(config, size, module="fake_follower", timing=TIMING, hosts=hosts, model="theirs")


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_frames_and_words_come_whole_and_in_order(machine, tmp_path: Path) -> None:
    """Two machines of two ranks each; those elsewhere find the model by the name that rank 0 was given."""
    there = machine("127.0.0.2")
    with begun(tmp_path / "keys", there, each=2) as ranks:
        words = sorted(ranks.receive(60) for _ in range(3))
        assert [re.findall(rb"ready: (\w+), part (\d) of 2", word.text) for word in words] == [
            [(b"toy", b"1")],
            [(b"theirs", b"0")],
            [(b"theirs", b"1")],
        ]
        assert len(there.followers()) == 2
        sent = [b"%d" % number * length for number, length in enumerate((1, 20_000, 3, 1_000_000))]
        for each in sent:
            ranks.send(b"3 echo " + each)
        assert [ranks.receive(60).text for _ in sent] == sent
    eventually(lambda: not there.followers())
    assert there.process.is_running(), "it waits for the next engine"


@pytest.mark.slow
def test_a_rank_that_reads_no_frames_holds_up_no_other_there(machine, tmp_path: Path) -> None:
    """One of a later stage computes for long. What it had not read blocked the worker, which passed on
    nothing of any rank, of no engine: all were lost after ten seconds."""
    there = machine("127.0.0.2")
    with begun(tmp_path / "keys", there, each=2) as ranks:
        for _ in range(3):
            ranks.receive(60)
        ranks.send(b"2 linger")
        for number in range(3):
            ranks.send(b"3 echo " + b"%d" % number * 1_000_000)
            assert ranks.receive(60) == (3, b"%d" % number * 1_000_000)
    eventually(lambda: not there.followers())
    assert there.process.is_running()


@pytest.mark.slow
def test_ranks_that_close_without_ending_hold_up_no_other_there(machine, tmp_path: Path) -> None:
    """The worker waited for each by itself, and passed on nothing of any rank, of no engine, meanwhile."""
    there = machine("127.0.0.2")
    with begun(tmp_path / "keys", there, each=3) as ranks, begun(tmp_path / "keys", there) as others:
        for _ in range(5):
            ranks.receive(60)
        others.receive(60)
        for rank in (b"3", b"4", b"5"):
            ranks.send(rank + b" mute")
        until = time.monotonic() + 2.5
        while (sent := time.monotonic()) < until:
            others.send(b"1 echo here")
            assert others.receive(60) == (1, b"here")
            assert time.monotonic() - sent < 1.0
        with pytest.raises(RankLost, match="closed its channel and did not end"):
            ranks.receive(60)
    eventually(lambda: not there.followers())


@pytest.mark.slow
def test_a_follower_that_loads_for_long_has_been_started(
    machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Libraries come from a slow disk. It was said after half a minute that no worker answers."""
    monkeypatch.setenv("FAKE_FOLLOWER_LOADS", "3")
    monkeypatch.setattr(processes, "ELSEWHERE", "impatient_proxy")
    there = machine("127.0.0.2")
    with begun(tmp_path / "keys", there) as ranks:
        assert ranks.receive(60).rank == 1


@pytest.mark.slow
def test_a_frame_may_have_any_size(machine, tmp_path: Path) -> None:
    """A step may begin with a hundred prompts of 100,000 tokens. Above 64 MiB, the connection was closed."""
    there = machine("127.0.0.2")
    with begun(tmp_path / "keys", there) as ranks:
        ranks.receive(60)
        ranks.send(b"1 echo " + bytes(70 * 2**20))
        assert len(ranks.receive(60).text) == 70 * 2**20


class Listening:
    """A door in whose place orders come, and that notes what is told."""

    def __init__(self) -> None:
        self.fd, self._bell = os.pipe()
        self.told: list[tuple[bytes, bytes, bytes]] = []

    def messages(self) -> Iterator[tuple[bytes, bytes, bytes]]:
        order = Order(own_version(), "engine", 1, 2, "tcp://127.0.0.1:1", 0.1, "{}")
        yield b"proxy", Kind.START, msgspec.json.encode(order)

    def send(self, server: bytes, kind: bytes, content: bytes) -> None:
        self.told.append((server, kind, content))

    def close(self) -> None:
        os.close(self.fd)
        os.close(self._bell)


@pytest.mark.parametrize("lacks", ["memfd_create", "socketpair"])
def test_a_worker_without_descriptors_refuses_a_rank(lacks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended, and with it the ranks of all engines that it had."""

    def none_left(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os if lacks == "memfd_create" else followers.socket, lacks, none_left)
    door = Listening()
    turns = iter([False, False, True])
    RankHost(cast(Door, door), TIMING, "fake_follower").run(lambda: next(turns))
    refusal = (b"proxy", Kind.REFUSED, b"has no room for a process: [Errno 24] Too many open files")
    assert door.told == [refusal] * 2
    door.close()


def kill(there: Machine, ranks: Ranks) -> None:
    there.followers()[0].send_signal(signal.SIGKILL)


def stop(there: Machine, ranks: Ranks) -> None:
    there.followers()[0].send_signal(signal.SIGSTOP)


def fail(there: Machine, ranks: Ranks) -> None:
    ranks.send(b"1 fail")


def kill_the_worker(there: Machine, ranks: Ranks) -> None:
    there.process.send_signal(signal.SIGKILL)


def stop_the_worker(there: Machine, ranks: Ranks) -> None:
    there.process.send_signal(signal.SIGSTOP)


def end_the_worker(there: Machine, ranks: Ranks) -> None:
    there.process.send_signal(signal.SIGTERM)


@pytest.mark.parametrize(
    ("lose", "message"),
    [
        (kill, r"rank 1 .*\n.*tcp://127.0.0.2:\d+ was ended by SIGKILL"),
        pytest.param(
            stop, r"rank 1 of the engine gave no sign of life for \d seconds", marks=pytest.mark.slow
        ),
        pytest.param(
            fail,
            r"rank 1 (.|\n)*exited with code 1; its last words were:\nthe checkpoint lacks layer 7",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            kill_the_worker,
            r"rank 1 .*\n.*is no longer connected",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            stop_the_worker,
            r"rank 1 of the engine gave no sign of life for \d seconds",
            marks=pytest.mark.slow,
        ),
        pytest.param(end_the_worker, r"rank 1 .*\n.*was ended, as its worker was", marks=pytest.mark.slow),
    ],
)
def test_a_rank_that_is_lost_there_is_lost_here(lose, message, machine, tmp_path: Path) -> None:
    there = machine("127.0.0.2")
    with begun(tmp_path / "keys", there) as ranks:
        assert ranks.receive(60).rank == 1
        lose(there, ranks)
        with pytest.raises(RankLost, match=message):
            ranks.receive(60)
    if there.process.is_running() and there.process.status() != psutil.STATUS_STOPPED:
        eventually(lambda: not there.followers())


@pytest.mark.slow
def test_ranks_end_when_the_machine_of_rank_0_is_silent(machine, tmp_path: Path) -> None:
    there = machine("127.0.0.2")
    with begun(tmp_path / "keys", there) as ranks:
        assert ranks.receive(60).rank == 1
        (follower,) = ranks._followers
        assert follower.process is not None
        follower.process.send_signal(signal.SIGSTOP)
        eventually(lambda: not there.followers())


@pytest.mark.slow
def test_another_key_is_not_let_in(machine, tmp_path: Path) -> None:
    there, other = machine("127.0.0.2"), tmp_path / "other"
    kept_keys(str(other))
    with begun(other, there) as ranks, pytest.raises(RankLost, match="has other keys"):
        ranks.receive(60)
    assert not there.followers()
