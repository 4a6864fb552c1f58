"""Ray Serve serves Turnout's application, streams included."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from starlette.applications import Starlette

from turnout.config import EngineConfig
from turnout.core.errors import EngineGone

ROOT = Path(__file__).parents[2]

SERVES = """
import ray
from ray import serve
from urllib.request import Request, urlopen
from deploy.ray_serve import turnout

ray.init(address="local", include_dashboard=False)  # another test may run a cluster
serve.start(http_options={"port": 8766})
serve.run(turnout({"model": "turnout-tiny", "max_num_seqs": "8"}), name="t", route_prefix="/")
body = b'{"prompt": "def f(", "max_tokens": 5, "stream": true}'
asked = Request("http://127.0.0.1:8766/v1/completions", body, {"Content-Type": "application/json"})
print(urlopen(asked, timeout=60).read().decode())
print(urlopen("http://127.0.0.1:8766/health").read().decode())
serve.shutdown()
"""


@pytest.mark.slow
def test_an_application_of_ray_serve_streams() -> None:
    pytest.importorskip("ray.serve", reason="pip install 'ray[serve]'")
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", SERVES],
        env={**os.environ, "PYTHONPATH": path, "RAY_USAGE_STATS_ENABLED": "0"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("data: {") >= 5 and "data: [DONE]" in done.stdout
    assert '{"status":"ok"}' in done.stdout


class Arms:
    """Stands for the engines."""

    failure: str | None = None

    def __init__(self, told: list[str]) -> None:
        self._told = told

    async def close(self) -> None:
        self._told.append("engines ended")


@pytest.fixture
def ingress(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An ingress without Ray and without engines; `told` says what became of it."""
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    monkeypatch.setattr(sys.modules["ray"], "serve", SimpleNamespace(Application=object), raising=False)
    spec = importlib.util.spec_from_file_location("ray_serve", ROOT / "deploy" / "ray_serve.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = module.Ingress(EngineConfig())
    made.told = told = []

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        told.append("application begun")
        yield
        told.append("application ended")

    async def start() -> None:
        told.append("engines started")
        made._app, made._arms = Starlette(lifespan=lifespan), Arms(told)

    monkeypatch.setattr(made, "_start", start)
    return made


def test_what_goes_on_beside_requests_begins_with_the_engines_and_ends_before_them(ingress: Any) -> None:
    """The application's own start and end were left out, and with them `GET /admin/history`'s figures."""
    orders = iter(["lifespan.startup", "lifespan.shutdown"])

    async def receive() -> dict[str, str]:
        return {"type": next(orders)}

    async def send(message: dict[str, str]) -> None:
        ingress.told.append(message["type"])

    asyncio.run(ingress({"type": "lifespan", "asgi": {}}, receive, send))
    assert ingress.told == [
        "engines started",
        "application begun",
        "lifespan.startup.complete",
        "application ended",
        "engines ended",
        "lifespan.shutdown.complete",
    ]


def test_ray_is_told_once_no_engine_is_left(ingress: Any) -> None:
    """Such a replica was kept, and answered 503 to its part of the requests."""
    asyncio.run(ingress._start())
    ingress.check()
    ingress._arms.failure = "the engine process exited with code 1"
    with pytest.raises(EngineGone, match="exited with code 1"):
        ingress.check()
