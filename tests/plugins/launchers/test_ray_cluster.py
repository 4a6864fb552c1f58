"""Engines on a Ray cluster: placed by it, lost with their actors, and no token goes through it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from asking import COMPLETIONS, events
from running_server import RunningServer, eventually, running

from turnout.config import EngineConfig, ServerConfig
from turnout.core.errors import ConfigError
from turnout.core.interfaces.launcher import EngineOrder
from turnout.models.hub.resolve import resolve_model
from turnout.plugins.launchers import ray_cluster
from turnout.plugins.launchers.ray_cluster import RayCluster, RayEngine, machines_of, shared_out
from turnout.server.engine.client import FACTORY
from turnout.text.tokenizer import load_tokenizer

SUPPORT = Path(__file__).parents[2] / "support"
BODY = {"prompt": [105, 106, 107, 108, 109], "max_tokens": 120, "user": "brisk"}


def test_without_ray_it_is_said_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(ray_cluster, "import_module", missing)
    with pytest.raises(ConfigError, match=r"pip install 'turnout\[ray\]'"):
        RayCluster()


def test_ranks_of_an_engine_are_neighbours_where_nodes_have_as_many() -> None:
    nodes = {0: "a", 1: "b", 2: "a", 3: "b"}
    assert shared_out(nodes, 1) == [(0,), (1,), (2,), (3,)]
    engines = shared_out(nodes, 2)
    assert engines == [(0, 2), (1, 3)]
    assert [machines_of(each, nodes) for each in engines] == [[[0, 2]], [[1, 3]]]
    assert machines_of((0, 2, 1, 3), nodes) == [[0, 2], [1, 3]]
    assert machines_of((0, 2, 1), nodes) == [[0], [2], [1]], "each as if on a node of its own"


class FakeActor:
    """Runs until the test ends it, however early Ray was told to kill it."""

    def __init__(self) -> None:
        self.over: Future[None] = Future()
        self.address = SimpleNamespace(remote=lambda: ("tcp://127.0.0.1:7000", "k" * 40))
        self.run = SimpleNamespace(remote=lambda *_: self.over)


class FakeRay:
    """A cluster that has room for one engine."""

    def __init__(self) -> None:
        self.actors: list[FakeActor] = []
        self.groups = 0
        self.util = SimpleNamespace(
            placement_group=self.placement_group,
            placement_group_table=lambda group: {"bundles_to_node_id": {0: "a"}},
            remove_placement_group=lambda group: None,
            scheduling_strategies=SimpleNamespace(PlacementGroupSchedulingStrategy=lambda **_: None),
        )

    def init(self, **_: object) -> None: ...

    def kill(self, actor: FakeActor) -> None: ...

    def available_resources(self) -> dict[str, float]:
        return {}

    def placement_group(self, bundles: list[object], strategy: str) -> SimpleNamespace:
        self.groups += 1
        return SimpleNamespace(wait=lambda seconds, fits=self.groups == 1: fits)

    def remote(self, kind: type) -> Any:
        def started(*_: object) -> FakeActor:
            self.actors.append(FakeActor())
            return self.actors[-1]

        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=started))

    def get(self, given: Any) -> Any:
        return given.result() if isinstance(given, Future) else given


@pytest.mark.parametrize("told_by", ["Ray", "its channel"])
def test_an_engine_takes_the_bundles_of_the_one_that_it_replaces(
    told_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Previously it asked for others, for which a cluster may have no room, before they were given back."""
    ray = FakeRay()
    monkeypatch.setattr(ray_cluster, "_ray", lambda: ray)
    cluster = RayCluster(seconds=30)

    def begun() -> RayEngine:
        engine = cluster.launch(EngineOrder("factory", "info"))
        engine.configure(EngineConfig(model="m").model_dump_json())
        return engine

    first = begun()
    first.address.result(10)
    if told_by == "Ray":
        ray.actors[0].over.set_exception(RuntimeError("the actor died"))
        assert "the actor died" in first.death.result(10).how
        first.kill()
        second = begun()
    else:
        first.kill()
        second = begun()
        ray.actors[0].over.set_exception(RuntimeError("the actor was killed"))
    second.address.result(10)
    assert ray.groups == 1
    ray.actors[1].over.set_result(None)
    second.death.result(10)


def text(chunks: list[dict[str, Any]]) -> str:
    return "".join(choice["text"] for chunk in chunks for choice in chunk["choices"])


def states(server: RunningServer) -> dict[str, str]:
    listed = server.http.get("/admin/replicas").json()["replicas"]
    return {replica["name"]: replica["state"] for replica in listed}


def actors(kind: str = "EngineActor") -> list[psutil.Process]:
    """The processes of actors, by default of those that run engines."""
    found = psutil.process_iter(["cmdline"])
    return [each for each in found if kind in " ".join(each.info["cmdline"] or ())]


def delivered(server: RunningServer) -> int:
    streams = [stream for replica in server.fleet.replicas for stream in replica.client.streams.unfinished]
    return sum(len(output) for stream in streams for output in stream.outputs.values())


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Two nodes of two CPUs each."""
    ray = pytest.importorskip("ray", reason="the extra `ray` is not installed")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(SUPPORT), prepend=os.pathsep)
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
        cluster.add_node(num_cpus=2)
        yield cluster
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture
def server(cluster: Any) -> Iterator[RunningServer]:
    folder = resolve_model("turnout-tiny")
    config = ServerConfig(replicas=2, launcher="ray:strategy=SPREAD", ray_address=cluster.address)
    with running(load_tokenizer(folder), EngineConfig(model=str(folder)), config) as server:
        yield server


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_engines_are_spread_and_streams_outlive_an_actor(server: RunningServer) -> None:
    import ray

    table = next(iter(ray.util.placement_group_table().values()))
    assert table["strategy"] == "SPREAD" and len({*table["bundles_to_node_id"].values()}) == 2
    alone = text(events(server, COMPLETIONS, **BODY))
    with ThreadPoolExecutor(8) as pool:
        streams = [pool.submit(events, server, COMPLETIONS, **BODY) for _ in range(8)]
        eventually(lambda: delivered(server) > 40)
        os.kill(actors()[0].pid, signal.SIGKILL)
        assert [text(stream.result(60)) for stream in streams] == [alone] * 8
    eventually(lambda: sorted(states(server).values()) == ["serving", "serving"], 40)
    assert server.fleet.restarts == 1
    assert server.post("/admin/replicas", action="remove", replica="0").status_code == 200
    eventually(lambda: states(server) == {"1": "serving"} and len(actors()) == 1, 20)
    assert text(events(server, COMPLETIONS, **BODY)) == alone


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_ranks_of_an_engine_are_on_two_nodes(cluster: Any) -> None:
    """Streams go on when the actor that takes ranks is killed."""
    folder = resolve_model("turnout-tiny")
    config = ServerConfig(launcher="ray:strategy=STRICT_SPREAD", ray_address=cluster.address)
    engine = EngineConfig(model=str(folder), pipeline_parallel_size=2, kv_memory=2**26)
    body = {"prompt": "Once upon a time", "max_tokens": 60, "temperature": 0, "ignore_eos": True}
    with running(load_tokenizer(folder), engine, config, factory=FACTORY) as server:
        assert server.http.get("/admin/replicas").json()["replicas"][0]["ranks"] == 2
        whole = text(events(server, COMPLETIONS, **body))
        assert len(whole) > 60
        (ranks,) = actors("RanksActor")
        with ThreadPoolExecutor(4) as pool:
            streams = [pool.submit(events, server, COMPLETIONS, **body) for _ in range(4)]
            eventually(lambda: delivered(server) > 20)
            os.kill(ranks.pid, signal.SIGKILL)
            assert [text(stream.result(120)) for stream in streams] == [whole] * 4
