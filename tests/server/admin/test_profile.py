"""Profiles of engines, by vLLM's endpoints."""

from __future__ import annotations

import gzip
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from asking import COMPLETIONS
from click.testing import CliRunner
from running_server import RunningServer, Start, eventually

from turnout.cli.bench.serve import command as bench_serve
from turnout.config import ServerConfig
from turnout.core.engine.recording.profiling import MAX_SECONDS, Profiling
from turnout.core.errors import ConfigError
from turnout.core.types.messages import ProfileFiles, StartProfile, StopProfile
from turnout.server.storage.stores import check_storage

BODY = {"prompt": "hello", "max_tokens": 4}


@pytest.fixture(autouse=True)
def with_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ECHO_IMPORTS", "torch turnout.runner.execution.profiler")


def post(server: RunningServer, path: str, **more: Any) -> Any:
    return server.http.post(path, timeout=60, **more)


def trace(file: str) -> list[dict[str, Any]]:
    """The events of a trace, each of a kind that Perfetto reads."""
    content = json.loads(gzip.decompress(Path(file).read_bytes()))
    events: list[dict[str, Any]] = content["traceEvents"]
    for event in events:
        assert isinstance(event["name"], str) and event["ph"] in "XBEiIMsftbenC"
        if event["ph"] == "X":
            assert event["ts"] >= 0 and event["dur"] >= 0 and {"pid", "tid"} <= event.keys()
    return events


@pytest.mark.parametrize("replicas", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_each_replica_writes_a_trace_that_perfetto_opens(start: Start, tmp_path: Path, replicas: int) -> None:
    server = start(profile_dir=tmp_path / "profiles", replicas=replicas)
    begun = post(server, "/start_profile")
    assert (begun.status_code, begun.json()) == (200, {"files": [], "notes": []})
    for _ in range(4):
        assert post(server, COMPLETIONS, json=BODY).status_code == 200
    ended = post(server, "/stop_profile").json()
    traces = sorted(file for file in ended["files"] if file.endswith(".pt.trace.json.gz"))
    assert [Path(file).name.split("-")[0] for file in traces] == ["0", "1"][:replicas]
    events = [event for file in traces for event in trace(file)]
    assert any(event["ph"] == "X" and event["name"] == "engine step" for event in events)
    native = [file for file in ended["files"] if file.endswith(".perf.data")]
    assert all(Path(file).stat().st_size for file in native)
    assert len(native) == replicas or all(
        note.startswith("no native samples: perf") for note in ended["notes"]
    )


def test_a_replica_that_is_drained_meanwhile_writes_its_trace_too(start: Start, tmp_path: Path) -> None:
    """It was not asked, so that its profile went on until its end came of itself, minutes later."""
    server = start(profile_dir=tmp_path / "profiles", replicas=2)
    assert post(server, "/start_profile").status_code == 200
    assert post(server, "/admin/replicas", json={"action": "drain", "replica": "1"}).status_code == 200
    ended = post(server, "/stop_profile").json()
    traces = [Path(file).name for file in ended["files"] if file.endswith(".pt.trace.json.gz")]
    assert sorted(name.split("-")[0] for name in traces) == ["0", "1"]
    assert post(server, "/start_profile").status_code == 200
    ended = post(server, "/stop_profile").json()
    assert [file.endswith(".pt.trace.json.gz") for file in ended["files"]].count(True) == 1


@pytest.mark.slow
def test_attacks_on_profiles(start: Start, tmp_path: Path) -> None:
    """Stopped without a start, started twice, with a body, without the key; an engine that dies meanwhile."""
    server = start(profile_dir=tmp_path, admin_key=("boss",), engine_restarts=3)
    for path in ("/start_profile", "/stop_profile"):
        assert post(server, path).status_code == 401
        assert server.http.get(path, headers={"authorization": "Bearer boss"}).status_code == 405
    server.http.headers["authorization"] = "Bearer boss"
    stopped = post(server, "/stop_profile")
    assert stopped.status_code == 409 and stopped.json()["error"]["code"] == "profile_conflict"
    assert post(server, "/start_profile", json={"output_dir": "/etc"}).status_code == 400
    assert post(server, "/start_profile", content=b"\xff", headers={"content-type": "x"}).status_code == 415
    assert post(server, "/start_profile", json={}).status_code == 200
    assert "already" in post(server, "/start_profile").json()["error"]["message"]
    first = server.client.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    eventually(lambda: server.client.pid != first and not server.client.restarting, 60)
    assert post(server, "/stop_profile").status_code == 409
    assert post(server, COMPLETIONS, json=BODY).status_code == 200


def test_without_a_folder_there_are_none(server: RunningServer) -> None:
    refused = post(server, "/start_profile")
    assert refused.status_code == 404 and "--profile-dir" in refused.json()["error"]["message"]


def test_a_folder_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    """The server started, and only /start_profile failed."""
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "within"):
        with pytest.raises(ConfigError, match=f"the folder {folder} of --profile-dir cannot be written"):
            check_storage(ServerConfig(profile_dir=folder))  # type: ignore[arg-type]
    check_storage(ServerConfig(profile_dir=tmp_path / "new"))  # type: ignore[arg-type]
    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.slow
def test_a_folder_that_cannot_be_written(start: Start, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    server = start(profile_dir=tmp_path / "file")
    refused = post(server, "/start_profile")
    assert refused.status_code == 400 and "cannot be written" in refused.json()["error"]["message"]
    assert post(server, COMPLETIONS, json=BODY).status_code == 200


@pytest.mark.slow
def test_a_benchmark_has_the_server_profiled(start: Start, tmp_path: Path) -> None:
    server = start(profile_dir=tmp_path)
    workload = "poisson:rate=20,requests=5,prompt=8,output=4"
    arguments = ["--url", server.url, "--workload", workload, "--vocabulary", "250", "--profile"]
    result = CliRunner().invoke(bench_serve, arguments)
    assert result.exit_code == 0, result.output
    (line,) = (line for line in result.output.splitlines() if line.endswith(".json.gz"))
    assert trace(line.removeprefix("profile: "))


class Recorded:
    """A profile that says whether it was written."""

    written = 0

    def step(self) -> Any:
        raise AssertionError

    def stop(self) -> ProfileFiles:
        self.written += 1
        return ProfileFiles(["there"], [])


def test_a_profile_that_nothing_stops_ends() -> None:
    now, profile = [0.0], Recorded()
    profiling = Profiling(lambda folder, name: profile, lambda: now[0])
    assert not profiling.carry_out(StartProfile("somewhere")).error
    profiling.check()
    assert profiling.active and not profile.written
    now[0] = MAX_SECONDS
    profiling.check()
    assert not profiling.active and profile.written == 1
    assert profiling.carry_out(StopProfile()).error_kind == "conflict"


def test_an_engine_that_ends_writes_its_profile() -> None:
    profile = Recorded()
    profiling = Profiling(lambda folder, name: profile, lambda: 0.0)
    profiling.carry_out(StartProfile("somewhere"))
    profiling.close()
    profiling.close()
    assert profile.written == 1
