"""Ranks on GPUs, as far as they can be shown without: each has its own, and what they do there is done on the
CPU."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from as_on_gpus import as_on_gpus
from ranked_engines import answers, engine

from turnout.config import EngineConfig
from turnout.core.errors import ConfigError, NoRoom
from turnout.core.types.model_spec import ModelSpec
from turnout.models.families.llama import Llama
from turnout.models.random.shapes import Shape, config_of
from turnout.models.sharding.stages import Stage, StagePlan
from turnout.runner.memory import budget as budgets
from turnout.runner.memory.budget import Budget, GpuRoom
from turnout.runner.ranks import share
from turnout.runner.ranks.meetings import Meetings
from turnout.runner.ranks.processes import Ranks, config_of_rank
from turnout.runner.ranks.rank_zero import RankZero, check_ranks

HERE = Path(__file__).parent
GIB = 2**30


@pytest.fixture
def spec() -> ModelSpec:
    return Llama().spec(config_of(Shape(64, 2, 4, 2, 96, 160), "llama"))


def config(**options: Any) -> EngineConfig:
    return EngineConfig(model="x", **options)


@pytest.mark.parametrize(
    ("first", "each", "devices"),
    [
        ("cuda:0", 4, ["cuda:0", "cuda:1", "cuda:2", "cuda:3"]),
        ("cuda:2", 2, ["cuda:2", "cuda:3", "cuda:2", "cuda:3"]),
        ("cpu", 2, ["cpu"] * 4),
    ],
)
def test_each_rank_of_a_machine_has_the_next_gpu(first: str, each: int, devices: list[str]) -> None:
    """Ranks 2 and 3 of the second case are on another machine."""
    decided = config(device=first)
    assert [config_of_rank(decided, rank, each).device for rank in range(4)] == devices


@pytest.mark.parametrize(("device", "fits"), [("cuda:0", True), ("cuda:2", True), ("cuda:3", False)])
def test_machines_with_too_few_gpus_are_refused(
    device: str, fits: bool, spec: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    asked = config(tensor_parallel_size=2)
    if fits:
        check_ranks(asked, spec, torch.device(device))
        return
    with pytest.raises(
        ConfigError, match=r"tensor_parallel_size=2 needs 2 GPUs .* from cuda:3 on, .* sees 4\. Take fewer"
    ):
        check_ranks(asked, spec, torch.device(device))


def test_pytorch_without_nccl_is_refused(spec: ModelSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: False)
    with pytest.raises(ConfigError, match="pipeline_parallel_size=2 needs a PyTorch built with NCCL"):
        check_ranks(config(pipeline_parallel_size=2), spec, torch.device("cuda:0"))


@pytest.mark.parametrize(("device", "names"), [("cuda:1", {"nccl"}), ("cpu", {"shm", "gloo"})])
def test_ranks_on_gpus_exchange_by_nccl(
    device: str, names: set[str], spec: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both those that divide layers and the stages."""
    opened = []

    def open_collective(name: str, meeting: object, rank: int, size: int, group: int) -> SimpleNamespace:
        opened.append(name)
        return SimpleNamespace(rank=rank, size=size)

    monkeypatch.setattr(share, "open_collective", open_collective)
    asked = config(tensor_parallel_size=2, pipeline_parallel_size=2, device=device)
    found = share.RankShare.of(asked, Meetings(object()), 1, Llama(), spec)  # type: ignore[arg-type]
    assert len(opened) == 2 and set(opened) <= names
    assert [found.adds_by, found.joined_by] == opened


def test_a_stage_receives_on_its_own_device(spec: ModelSpec) -> None:
    """``meta`` stands for a GPU."""
    asked: list[torch.Tensor] = []

    def receive(like: torch.Tensor, source: int) -> torch.Tensor:
        asked.append(like)
        return like

    line = SimpleNamespace(rank=1, size=2, receive=receive)
    model = torch.nn.Module()
    model.forward = lambda tokens, positions, attend, hidden: hidden  # type: ignore[method-assign]
    stage = Stage(model, StagePlan(range(1, 2), line, leads=True), spec, torch.float32)  # type: ignore[arg-type]
    tokens = torch.zeros(3, dtype=torch.int64, device="meta")
    stage(tokens, tokens, None)  # type: ignore[arg-type]
    assert [(each.device.type, *each.shape) for each in asked] == [("meta", 3, spec.hidden_size)]


# ------------------------------------------------------------------ memory


@pytest.fixture
def budget(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Budget]:
    for part in ("_logits", "_activations"):
        monkeypatch.setattr(Budget, part, lambda self: GIB // 2)

    def of(**options: Any) -> Budget:
        asked = config(tensor_parallel_size=2, **options)
        return Budget(asked, None, torch.device("cuda:0"), 2048, 16, 2**20, 2**20, 512, 1)  # type: ignore[arg-type]

    return of


def test_the_gpu_with_least_room_decides_for_all(budget: Callable[..., Budget]) -> None:
    """Half of each position's 2,048 bytes is on each; a step takes 1 GiB."""
    rooms = [GpuRoom(5 * GIB, 1024), GpuRoom(3 * GIB, 1024)]
    assert budget().tokens(rooms=rooms) == 2 * GIB // 1024
    assert budget().tokens(rooms=rooms[:1]) == 4 * GIB // 1024
    assert not budget().sized_by_device, "a step of rank 0 alone cannot be measured"
    assert budget().tokens(rooms=[GpuRoom(-GIB, 1024)]) == 0


def test_what_is_asked_for_must_fit_on_each(budget: Callable[..., Budget]) -> None:
    rooms = [GpuRoom(5 * GIB, 1024), GpuRoom(3 * GIB, 1024)]
    assert budget(kv_memory=4 * GIB).tokens(rooms=rooms) == 4 * GIB // 2048
    with pytest.raises(NoRoom, match=r"kv_memory asks for 5\.0 GiB = .* room .* 2,097,152, .* most 4\.0 GiB"):
        budget(kv_memory=5 * GIB).tokens(rooms=rooms)


def test_what_a_gpu_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (50 * GIB, 80 * GIB))
    room = budgets.gpu_room(torch.device("cuda:1"), config(gpu_memory_utilization=0.9))
    assert room == 42 * GIB, "72 may be used, and 30 are"


def test_rank_0_knows_the_room_of_all() -> None:
    group = RankZero(None, None, None, others=[GpuRoom(2, 1)])  # type: ignore[arg-type]
    assert group.rooms(GpuRoom(1, 1)) == [GpuRoom(1, 1), GpuRoom(2, 1)]
    assert group.rooms(None) == [], "ranks on CPUs share the machine's memory"


# ------------------------------------------------------------------ steps


class AsOnGpus(Ranks):
    @classmethod
    def start(cls, *given: Any, **named: Any) -> AsOnGpus:
        return super().start(*given, **{**named, "module": "follower_as_on_gpus"})


@pytest.mark.parametrize(
    ("options", "captured"),
    [({"ranks": 2}, True), pytest.param({"pipeline_parallel_size": 2}, False, marks=pytest.mark.slow)],
    ids=str,
)
def test_captured_steps_exchange_again_with_each_replay(
    options: dict[str, Any], captured: bool, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stages receive and send inside a step, and are not captured."""
    paths = (str(HERE), str(HERE.parents[1] / "support"), os.environ.get("PYTHONPATH", ""))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setattr("turnout.runner.ranks.rank_zero.Ranks", AsOnGpus)
    torch_kernels = {"cpu_kernels": "torch", "tokens": 1400}
    alone = answers(engine(model, **torch_kernels))
    with as_on_gpus() as recorders:
        together = engine(model, **options, **torch_kernels)
        assert answers(together) == alone
    assert (recorders[0].pieces > 0) == captured
