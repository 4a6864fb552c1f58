"""Followers of an engine on several devices: one that is lost ends all, and none outlives rank 0."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from turnout.config import EngineConfig
from turnout.core.errors import CollectiveError, RankLost
from turnout.core.interfaces.collective import Collective
from turnout.runner.memory.numa import run_on
from turnout.runner.ranks.processes import Ranks, Word, config_of_rank
from turnout.runner.ranks.rank_zero import _close
from turnout.runner.ranks.silence import Silence, Timing

HERE = Path(__file__).parent
CONFIG = EngineConfig(model="toy")
QUICK = Timing(beat=0.05, silent=1.0, exiting=0.3)


@pytest.fixture(autouse=True)
def fake_followers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]))


@pytest.fixture
def ranks() -> Iterator[Ranks]:
    """Two followers, who are ready."""
    with Ranks.start(CONFIG, 3, module="fake_follower", timing=QUICK) as started:
        assert {started.receive(60).rank for _ in range(2)} == {1, 2}
        yield started


def pids(ranks: Ranks) -> list[int]:
    return [follower.process.pid for follower in ranks._followers if follower.process]


def lives(pid: int) -> bool:
    """Whether there is such a process, be it a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def lost(ranks: Ranks) -> RankLost:
    """Waits for the loss of a rank, which every call then tells."""
    with pytest.raises(RankLost) as caught:
        ranks.receive(60)
    for again in (ranks.check, lambda: ranks.receive(1)):
        with pytest.raises(RankLost) as told:
            again()
        assert told.value is caught.value
    return caught.value


def test_frames_of_any_length_come_whole_and_in_order(ranks: Ranks) -> None:
    sent = [b"%d" % number * length for number, length in enumerate((1, 20_000, 3, 1_000_000))]
    for each in sent:
        ranks.send(b"* echo " + each)
    words = [ranks.receive(60) for _ in range(2 * len(sent))]
    for rank in (1, 2):
        assert [word.text for word in words if word.rank == rank] == sent
    with pytest.raises(TimeoutError, match="no rank said anything"):
        ranks.receive(0.01)


def test_each_follower_has_its_share_of_the_machine() -> None:
    cores = os.sched_getaffinity(0)
    run_on(frozenset(sorted(cores)[:1]))  # as rank 0 keeps to its NUMA nodes
    try:
        with Ranks.start(CONFIG, 2, module="fake_follower", timing=QUICK) as ranks:
            word = Word(1, f"ready: toy, part 1 of 2, {len(cores)} cores, 2 ranks".encode())
            assert ranks.receive(60) == word
    finally:
        run_on(frozenset(cores))
    shared = CONFIG.model_copy(update={"cpu_engines": 2, "cpu_engine": 1})
    assert [config_of_rank(shared, rank, 2).cpu_engine for rank in (0, 1)] == [2, 3]
    unnumbered = CONFIG.model_copy(update={"cpu_engines": 2})
    assert config_of_rank(unnumbered, 1, 2).cpu_engine is None
    assert config_of_rank(unnumbered, 1, 2).cpu_engines == 4
    assert config_of_rank(CONFIG.model_copy(update={"cpu_share": 0.5}), 1, 2).cpu_share == 0.25


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        (b"die", "exited with code 3; its last words were:\nthe sky is falling"),
        (
            b"fail",
            "exited with code 1; its last words were:\nthe checkpoint lacks layer 7",
        ),
    ],
)
def test_a_follower_that_ends_takes_all_along(ranks: Ranks, verb: bytes, words: str) -> None:
    begun = pids(ranks)
    aborted = threading.Event()
    ranks.abort_with(aborted.set)
    ranks.send(b"2 " + verb)
    assert str(lost(ranks)) == f"rank 2 of the engine {words}"
    assert aborted.wait(10)
    ranks.close()
    assert not any(map(lives, begun))
    late = threading.Event()
    ranks.abort_with(late.set)
    assert late.is_set()


def test_a_group_that_cannot_be_aborted_hides_no_loss(ranks: Ranks, caplog: pytest.LogCaptureFixture) -> None:
    """NCCL's may raise where a GPU is gone. Rank 0 waited for a word of the rank that was lost for ever."""
    aborted = threading.Event()

    def fails() -> None:
        raise RuntimeError("the communicator is broken")

    ranks.abort_with(fails)
    ranks.abort_with(aborted.set)
    os.kill(pids(ranks)[0], signal.SIGKILL)
    assert "SIGKILL" in str(lost(ranks))
    assert aborted.is_set() and "cannot be aborted: the communicator is broken" in caplog.text


def test_a_group_that_cannot_be_closed_leaves_no_follower(ranks: Ranks) -> None:
    class Broken:
        def close(self) -> None:
            raise RuntimeError("the communicator is broken")

    with pytest.raises(RuntimeError):
        _close(ranks, [cast(Collective, Broken())])
    assert not any(map(lives, pids(ranks)))


def test_a_follower_that_is_killed_is_noticed_at_once(ranks: Ranks) -> None:
    os.kill(pids(ranks)[0], signal.SIGKILL)
    assert "rank 1 of the engine was ended by SIGKILL" in str(lost(ranks))


def test_a_follower_that_is_stopped_is_silent_and_then_killed(ranks: Ranks) -> None:
    begun = pids(ranks)
    os.kill(begun[1], signal.SIGSTOP)
    assert "rank 2 of the engine gave no sign of life for 1 seconds" in str(lost(ranks))
    ranks.close()
    assert not any(map(lives, begun))


def test_a_rank_that_is_lost_ends_the_wait_for_it_to_join(ranks: Ranks) -> None:
    """Previously rank 0 waited for it for up to seven days."""
    wanted, given_up = threading.Event(), threading.Event()

    def opening() -> Collective:
        wanted.set()
        given_up.wait()
        raise CollectiveError("no rank came")

    def kill() -> None:
        wanted.wait()
        os.kill(pids(ranks)[0], signal.SIGKILL)

    threading.Thread(target=kill).start()
    with pytest.raises(RankLost, match="rank 1 of the engine was ended by SIGKILL"):
        ranks.join(opening)
    ranks.close()
    assert os.path.exists(ranks.meetings.here.path), "the thread that was left alone may still look there"
    given_up.set()
    ranks.meetings.here.close()


def test_a_group_that_cannot_be_joined_says_why(ranks: Ranks) -> None:
    def opening() -> Collective:
        raise CollectiveError("gloo has no address")

    with pytest.raises(CollectiveError, match="gloo has no address"):
        ranks.join(opening)


@pytest.mark.slow
def test_sending_to_a_stopped_follower_does_not_wait_for_ever(ranks: Ranks) -> None:
    os.kill(pids(ranks)[0], signal.SIGSTOP)
    with pytest.raises(RankLost, match="rank 1 of the engine gave no sign of life"):
        for _ in range(1000):
            ranks.send(b"0 " + bytes(1 << 16))
    assert ranks.verdict(CollectiveError("a broken connection")) is lost(ranks)


def test_followers_ignore_what_a_terminal_and_a_supervisor_send(ranks: Ranks) -> None:
    for pid in pids(ranks):
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGTERM)
        assert os.getpgid(pid) != os.getpgid(0)
    ranks.send(b"* echo here")
    assert [ranks.receive(60).text for _ in range(2)] == [b"here", b"here"]


@pytest.mark.slow
def test_followers_end_in_good_order_or_are_killed_and_none_is_left(ranks: Ranks) -> None:
    begun, processes = pids(ranks), [follower.process for follower in ranks._followers]
    ranks.send(b"1 linger")
    ranks.close()
    ranks.close()
    assert [process.returncode for process in processes if process] == [-signal.SIGKILL, 0]
    assert not any(map(lives, begun))
    with pytest.raises(CollectiveError, match="were closed"):
        ranks.receive(1)


@pytest.mark.slow
def test_followers_that_do_not_end_are_waited_for_together() -> None:
    """Each was waited for by itself: five seconds for each."""
    timing = QUICK._replace(exiting=1.0)
    with Ranks.start(CONFIG, 5, module="fake_follower", timing=timing) as ranks:
        for _ in range(4):
            ranks.receive(60)
        ranks.send(b"* linger")
        begun = time.monotonic()
        ranks.close()
        assert 1.0 <= time.monotonic() - begun < 2.5


@pytest.mark.slow
def test_followers_outlive_the_thread_that_started_them() -> None:
    found: list[Ranks] = []
    starting = threading.Thread(
        target=lambda: found.append(Ranks.start(CONFIG, 2, module="fake_follower", timing=QUICK))
    )
    starting.start()
    starting.join()
    with found[0] as ranks:
        ranks.receive(60)
        ranks.send(b"* echo alive")
        assert ranks.receive(60).text == b"alive"


def test_a_follower_that_cannot_start_says_why() -> None:
    with Ranks.start(CONFIG, 2, module="no_such_follower", timing=QUICK) as ranks:
        assert "No module named no_such_follower" in str(lost(ranks))


def test_rank_0_that_is_killed_takes_along_even_followers_that_are_stopped() -> None:
    shared_memory = set(os.listdir("/dev/shm"))
    with subprocess.Popen([sys.executable, str(HERE / "rank_zero.py")], stdout=subprocess.PIPE) as rank_zero:
        assert rank_zero.stdout is not None
        followers = list(map(int, rank_zero.stdout.readline().split()))
        os.kill(followers[0], signal.SIGSTOP)
        rank_zero.kill()
    until = time.monotonic() + 30
    while any(map(running, followers)) and time.monotonic() < until:
        time.sleep(0.02)
    assert not any(map(running, followers))
    assert set(os.listdir("/dev/shm")) <= shared_memory


def running(pid: int) -> bool:
    """Whether a process, which is not ours to wait for, runs or is stopped; a zombie does neither."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_silence_is_time_in_which_the_watcher_itself_ran() -> None:
    now = [100.0]
    silence = Silence(Timing(beat=1.0, silent=10.0, starting=50.0), lambda: now[0])

    def after(seconds: float) -> bool:
        now[0] += seconds
        return silence.too_long()

    assert not any(after(1.0) for _ in range(49))  # it is starting
    silence.heard()
    assert not any(after(1.0) for _ in range(9))
    assert not after(0.5)
    assert after(0.5)
    silence.heard()
    assert not after(3600.0)  # this process was stopped: the rank's signs have yet to be read
    assert silence.seconds == 2.0
