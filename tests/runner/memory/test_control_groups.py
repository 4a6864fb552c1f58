"""A container's quota of CPU time says how many threads compute, though it hides no cores."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from turnout.config import EngineConfig
from turnout.core.registry.registry import Registry
from turnout.runner import compute_setup
from turnout.runner.checkpoint import open_checkpoint
from turnout.runner.compute_setup import ComputeSetup
from turnout.runner.memory import control_groups
from turnout.runner.memory.control_groups import cpu_quota

CONFIG = EngineConfig(model="turnout-tiny", device="cpu", cpu_kernels="torch")
SPEC = open_checkpoint(Registry.load(), CONFIG.model).spec


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(control_groups, "ROOT", tmp_path / "cgroup")
    monkeypatch.setattr(control_groups, "MEMBERSHIP", tmp_path / "membership")
    return tmp_path / "cgroup"


def member(root: Path, *lines: str) -> None:
    (root.parent / "membership").write_text("".join(f"{line}\n" for line in lines))


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"cpu.{name}").write_text(f"{text}\n")


def test_without_control_groups_there_is_no_quota(root: Path) -> None:
    assert cpu_quota() is None
    member(root, "0::/")
    assert cpu_quota() is None


def test_the_tightest_group_around_the_process_counts(root: Path) -> None:
    member(root, "0::/pods/turnout")
    write(root / "pods" / "turnout", max="max 100000")
    assert cpu_quota() is None
    write(root / "pods", max="250000 100000")
    assert cpu_quota() == 2.5


def test_the_older_groups_count_too(root: Path) -> None:
    member(root, "4:cpu,cpuacct:/docker/1234")
    write(root / "cpu" / "docker" / "1234", cfs_quota_us="-1", cfs_period_us="100000")
    assert cpu_quota() is None
    write(root / "cpu", cfs_quota_us="150000", cfs_period_us="100000")
    assert cpu_quota() == 1.5


def computing_with(threads: int) -> str:
    """What start-up says of so many."""
    return f"float32 on cpu, {threads} thread" + ("s" if threads > 1 else "")


@pytest.mark.parametrize(("quota", "threads"), [("350000", 3), ("50000", 1), ("6400000", 4)])
def test_an_engine_computes_with_as_many_threads_as_the_quota_keeps_running(
    root: Path, monkeypatch: pytest.MonkeyPatch, quota: str, threads: int
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    member(root, "0::/")
    write(root, max=f"{quota} 100000")
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        setup = ComputeSetup.chosen(CONFIG, SPEC)
        assert str(setup) == computing_with(threads)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("engines", "threads"), [(1, 3), (2, 1), (3, 1), (8, 1)])
def test_engines_that_share_a_machine_divide_what_the_quota_leaves(
    root: Path, monkeypatch: pytest.MonkeyPatch, engines: int, threads: int
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    member(root, "0::/")
    write(root, max="300000 100000")
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        setup = ComputeSetup.chosen(CONFIG.model_copy(update={"cpu_engines": engines}), SPEC)
        assert str(setup) == computing_with(threads)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("share", "threads"), [(1.0, 3), (0.7, 2), (0.5, 2), (0.1, 1)])
def test_an_engine_has_its_share_of_what_the_quota_leaves(
    root: Path, monkeypatch: pytest.MonkeyPatch, share: float, threads: int
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    member(root, "0::/")
    write(root, max="300000 100000")
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        config = CONFIG.model_copy(update={"cpu_share": share, "cpu_engines": 3})
        assert str(ComputeSetup.chosen(config, SPEC)) == computing_with(threads)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("options", "encoder", "niceness"),
    [
        ({}, True, 0),
        ({"cpu_engines": 2}, False, 0),
        ({"cpu_engines": 2}, True, 10),
        ({"cpu_share": 0.5}, True, 10),
        ({"cpu_engines": 2, "nice": 0}, True, 0),
        ({"nice": 4}, False, 4),
    ],
)
def test_an_engine_that_generates_nothing_gives_way_beside_others(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, object], encoder: bool, niceness: int
) -> None:
    gave_way: list[int] = []
    monkeypatch.setattr(compute_setup, "give_way", gave_way.append)
    spec = replace(SPEC, encoder=encoder)
    ComputeSetup.chosen(CONFIG.model_copy(update=options), spec)
    assert gave_way == [niceness][: bool(niceness)]


def test_all_threads_of_a_process_give_way() -> None:
    """On Linux, a thread's niceness is its own."""
    script = (
        "import os, threading, time\n"
        "from turnout.runner.memory.numa import give_way\n"
        "before = threading.Event()\n"
        "threading.Thread(target=before.wait, daemon=True).start()\n"
        "give_way(7)\n"
        "print({os.getpriority(os.PRIO_PROCESS, int(each)) for each in os.listdir('/proc/self/task')})\n"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == str({max(7, os.getpriority(os.PRIO_PROCESS, 0))})


def test_who_names_a_number_of_threads_gets_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    member(root, "0::/")
    write(root, max="100000 100000")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        setup = ComputeSetup.chosen(CONFIG, SPEC)
        assert str(setup) == "float32 on cpu, 2 threads"
    finally:
        torch.set_num_threads(before)
