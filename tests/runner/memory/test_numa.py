"""Engines that share a machine of several NUMA nodes keep to a part of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from turnout.config import EngineConfig
from turnout.core.registry.registry import Registry
from turnout.runner.checkpoint import open_checkpoint
from turnout.runner.compute_setup import ComputeSetup
from turnout.runner.memory import numa
from turnout.runner.memory.numa import engine_part, numa_nodes, run_on

CONFIG = EngineConfig(model="turnout-tiny", device="cpu", cpu_kernels="torch")
USABLE = sorted(os.sched_getaffinity(0))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the nodes; the process gets its cores and threads back."""
    monkeypatch.setattr(numa, "NODES", tmp_path)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    threads = torch.get_num_threads()
    yield tmp_path
    run_on(frozenset(USABLE))
    torch.set_num_threads(threads)


def write(machine: Path, **nodes: str) -> None:
    for node, cores in nodes.items():
        (machine / node).mkdir()
        (machine / node / "cpulist").write_text(f"{cores}\n")


def chosen(**options: object) -> ComputeSetup:
    torch.set_num_threads(2)
    spec = open_checkpoint(Registry.load(), CONFIG.model).spec
    return ComputeSetup.chosen(CONFIG.model_copy(update=options), spec)


def test_nodes_have_the_cores_that_the_process_may_run_on(machine: Path) -> None:
    assert numa_nodes() == {}, "a system that tells none"
    write(machine, node0=f"{USABLE[0]},5000-5003", node1="6000-6001", node10="", has_cpu="0")
    assert numa_nodes() == {0: frozenset(USABLE[:1])}


TWO = {0: frozenset({0, 1, 2, 3}), 1: frozenset({4, 5, 6, 7})}
FOUR = {node: frozenset({2 * node, 2 * node + 1}) for node in range(4)}


@pytest.mark.parametrize(
    ("nodes", "engines", "expected"),
    [
        (TWO, 2, [((0,), 1 / 2), ((1,), 1 / 2)]),
        (TWO, 3, [((0,), 1 / 4), ((1,), 1 / 2), ((0,), 1 / 4)]),
        (TWO, 4, [((0,), 1 / 4), ((1,), 1 / 4), ((0,), 1 / 4), ((1,), 1 / 4)]),
        (FOUR, 2, [((0, 2), 1 / 2), ((1, 3), 1 / 2)]),
    ],
)
def test_engines_take_nodes_in_turn(
    nodes: dict[int, frozenset[int]], engines: int, expected: list[tuple[tuple[int, ...], float]]
) -> None:
    parts = [engine_part(nodes, number, engines) for number in range(engines)]
    assert [(part.nodes, part.share) for part in parts if part] == expected
    again = [engine_part(nodes, number + engines, engines) for number in range(engines)]
    assert again == parts, "engines that come while others leave"


def test_one_engine_or_one_node_is_not_divided() -> None:
    assert engine_part(TWO, 0, 1) is None
    assert engine_part({0: TWO[0]}, 0, 2) is None


@pytest.mark.skipif(len(USABLE) < 2, reason="one core cannot be two nodes")
def test_an_engine_keeps_to_its_node(machine: Path) -> None:
    write(machine, node0=str(USABLE[0]), node1=str(USABLE[1]))
    setup = chosen(cpu_engines=2, cpu_engine=1)
    assert str(setup) == "float32 on cpu, 1 thread of NUMA node 1"
    assert os.sched_getaffinity(0) == {USABLE[1]}


@pytest.mark.skipif(len(USABLE) < 2, reason="one core cannot be two nodes")
@pytest.mark.parametrize("options", [{"cpu_engines": 2}, {"cpu_engine": 1}])
def test_without_a_number_or_others_it_computes_on_all_nodes(
    machine: Path, options: dict[str, object]
) -> None:
    write(machine, node0=str(USABLE[0]), node1=str(USABLE[1]))
    assert "NUMA" not in str(chosen(**options))
    assert os.sched_getaffinity(0) == set(USABLE)
