"""What an engine's exit code and the kernel's count of kills say: a fault, or somebody's doing."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from turnout.core.interfaces.launcher import Death
from turnout.plugins.launchers.exit_codes import OomKills, death_of


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE", "SIGTRAP", "SIGSYS"])
def test_a_signal_that_a_process_brings_upon_itself_is_a_fault(name: str) -> None:
    death = death_of(-signal.Signals[name], out_of_memory=False)
    assert death == Death(f"was ended by {name}", fault=True)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1"])
def test_a_signal_from_outside_is_none(name: str) -> None:
    assert not death_of(-signal.Signals[name], out_of_memory=True).fault


def test_a_real_time_signal_has_a_number_alone() -> None:
    """The thread that waits for the process died of it, and nothing learnt that the engine was gone."""
    assert death_of(-35, out_of_memory=False) == Death("was ended by signal 35", fault=False)


@pytest.mark.parametrize("code", [0, 1, 139])
def test_an_exit_that_nobody_asked_for_is_a_fault(code: int) -> None:
    assert death_of(code, out_of_memory=False) == Death(f"exited with code {code}", fault=True)


def test_a_kill_is_a_fault_only_if_memory_was_short() -> None:
    short, outside = (death_of(-signal.SIGKILL, out_of_memory=oom) for oom in (True, False))
    assert short.fault and "memory was short" in short.how
    assert not outside.fault and "from outside" in outside.how


EVENTS = "low 0\nhigh 0\nmax 3\noom 1\noom_kill {}\noom_group_kill 0\n"
PLACES = {
    "of cgroup v2": ("sys/fs/cgroup/pod/memory.events", EVENTS, "0::/pod\n"),
    "of a container": ("sys/fs/cgroup/memory.events", EVENTS, "0::/\n"),
    "of cgroup v1": (
        "sys/fs/cgroup/memory/pod/memory.oom_control",
        "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n",
        "7:cpu,cpuacct:/other\n5:memory:/pod\n",
    ),
    "of the machine": ("proc/vmstat", "nr_free_pages 12\noom_kill {}\n", ""),
}


@pytest.mark.parametrize("place", PLACES)
def test_the_kernels_count_is_read(place: str, tmp_path: Path) -> None:
    path, text, groups = PLACES[place]
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(groups)
    file.write_text(text.format(4))
    kills = OomKills(tmp_path)
    assert not kills.happened()
    file.write_text(text.format(5))
    assert kills.happened()


def test_the_narrowest_count_is_the_one_that_is_read(tmp_path: Path) -> None:
    """Other containers' kills are in the machine's count too."""
    for path, count in (("sys/fs/cgroup/memory.events", 0), ("proc/vmstat", 1)):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f"oom_kill {count}\n")
    kills = OomKills(tmp_path)
    (tmp_path / "proc/vmstat").write_text("oom_kill 9\n")
    assert not kills.happened()


def test_where_nothing_is_counted_no_kill_is_known_of(tmp_path: Path) -> None:
    assert not OomKills(tmp_path).happened()


def test_this_machines_count_can_be_read() -> None:
    assert not OomKills().happened()
