"""What a control group leaves is what there is: a container's, a service's, or one around them."""

from __future__ import annotations

import resource
from pathlib import Path

import psutil
import pytest
import torch

from turnout.runner.memory import control_groups
from turnout.runner.memory.device import free_memory
from turnout.runner.memory.host_memory import free_host_memory

MIB = 2**20
VERSION_2 = ("memory.max", "memory.current")
VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes")


def group(folder: Path, names: tuple[str, str], most: object, used: int, stat: str = "anon 1\n") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in zip(names, (most, used), strict=True):
        (folder / name).write_text(f"{value}\n")
    (folder / "memory.stat").write_text(stat)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(control_groups, "ROOT", tmp_path / "cgroup")
    monkeypatch.setattr(control_groups, "MEMBERSHIP", tmp_path / "membership")
    available = psutil.virtual_memory()._replace(available=4096 * MIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: available)
    return tmp_path / "cgroup"


def member(root: Path, *lines: str) -> None:
    (root.parent / "membership").write_text("".join(f"{line}\n" for line in lines))


def test_without_control_groups_it_is_the_systems(root: Path) -> None:
    assert free_host_memory() == 4096 * MIB
    member(root, "0::/")
    assert free_host_memory() == 4096 * MIB


def test_a_container_sees_its_own_group_as_the_root(root: Path) -> None:
    member(root, "0::/")
    group(root, VERSION_2, 1000 * MIB, 300 * MIB)
    assert free_host_memory() == 700 * MIB


def test_a_service_is_held_to_the_tightest_group_around_it(root: Path) -> None:
    member(root, "0::/system.slice/turnout.service")
    group(root / "system.slice" / "turnout.service", VERSION_2, "max", 300 * MIB)
    group(root / "system.slice", VERSION_2, 900 * MIB, 400 * MIB)
    assert free_host_memory() == 500 * MIB


def test_the_older_groups_count_too(root: Path) -> None:
    """They were passed over, and the system ended what took more than they allow."""
    member(root, "4:cpu:/", "9:memory:/docker/1234")
    group(root / "memory", VERSION_1, 1000 * MIB, 100 * MIB)
    assert free_host_memory() == 900 * MIB


def test_what_files_take_is_given_up_when_it_is_needed(root: Path) -> None:
    """A model that had just been downloaded filled a container's memory, and none seemed left to load it."""
    member(root, "0::/")
    stat = f"anon {50 * MIB}\ninactive_file {600 * MIB}\nactive_file {200 * MIB}\n"
    group(root, VERSION_2, 1000 * MIB, 900 * MIB, stat)
    assert free_host_memory() == 900 * MIB


def test_a_process_is_held_to_its_address_space(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The KV pool was larger than `ulimit -v` allows, and the engine failed."""
    used = psutil.Process().memory_info().vms
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (used + 512 * MIB, resource.RLIM_INFINITY))
    assert 256 * MIB < free_memory(torch.device("cpu")) < 768 * MIB
    assert free_host_memory() == 4096 * MIB, "other processes have limits of their own"
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (used // 2, resource.RLIM_INFINITY))
    assert free_memory(torch.device("cpu")) == 0
