"""`bench/fleet/fidelity.py`: a live fleet beside a simulated one, with the same router and requests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from turnout.config import EngineConfig
from turnout.lab.simulation import preset
from turnout.lab.simulation.cost import Seconds
from turnout.lab.workloads.source import load_workload

BENCH = Path(__file__).parents[2] / "bench"
STEP = 0.1
"""Seconds: far longer than what a busy machine takes to wake a process. With steps of 0.02 s, one that was
woken 0.1 s late made the p99 of the live fleet, which then said nothing of the simulation."""
ROUNDS = 3
OFF = 0.15
"""How far a simulation may be off."""


@pytest.fixture(scope="module")
def bench() -> Iterator[ModuleType]:
    spec = spec_from_file_location("fleet_fidelity", BENCH / "fleet" / "fidelity.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    before = sys.path[:]
    spec.loader.exec_module(module)
    yield module
    sys.path[:] = before


@pytest.mark.slow
@pytest.mark.parametrize("router", ["score", "prefix-affinity", "least-loaded"])
def test_a_simulated_fleet_foretells_the_live_one(bench: ModuleType, router: str) -> None:
    seconds = Seconds(fixed=STEP, tokens=((0, STEP / 2000),), sequence=STEP / 200)
    cost = msgspec.structs.replace(preset("a100-7b"), seconds=seconds)
    workload = load_workload(
        "poisson:rate=12,requests=150,prompt=uniform:16:64,prefix=uniform:64:256,prefixes=12,"
        "output=uniform:4:12,longest=512",
        seed=0,
    )
    config = EngineConfig(max_num_seqs=8, max_model_len=512, kv_memory=2**31)
    found = bench.compare(bench.Scene(config, cost, workload, replicas=3, router=router), ROUNDS)
    print(found)
    assert {name: off for name, (_, _, off) in found.items() if abs(off) >= OFF} == {}, found
    assert found["hit_rate"][1] > 0.3
