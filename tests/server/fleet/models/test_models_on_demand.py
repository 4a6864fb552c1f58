"""A server whose models are loaded when they are asked for: what its clients see, with real engines."""

from __future__ import annotations

import asyncio
import re
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import echo_engine
import httpx
import pytest
from running_server import FACTORY, eventually
from server_process import ServerProcess
from test_several_models import MESSAGES, SCRIPT, TEXT, settings

from turnout.config import EngineConfig, ModelConfig, ServerConfig
from turnout.config.models import shared_out
from turnout.core.errors import ConfigError
from turnout.server.app import create_app
from turnout.server.fleet.models import keeper, residence
from turnout.server.fleet.models.models import Models
from turnout.server.fleet.models.plan import ModelPlan
from turnout.server.http import early_events
from turnout.server.http.connections.http_server import HttpServer
from turnout.server.http.connections.listening import listening
from turnout.server.serve import StartedModel, hosted_models


@dataclass
class Server:
    """A server of models on demand, in a thread."""

    http: httpx.Client
    models: Models

    def states(self) -> dict[str, str]:
        return {card["id"]: card["state"] for card in self.http.get("/v1/models").json()["data"]}

    def status(self, name: str) -> dict[str, Any]:
        models = self.http.get("/admin/models").json()["models"]
        return next(model for model in models if model["name"] == name)

    def ask(self, name: str, path: str = "/v1/completions", **fields: Any) -> httpx.Response:
        return self.http.post(path, json={"model": name, "prompt": TEXT, "max_tokens": 4, **fields})

    def change(self, action: str, name: str) -> httpx.Response:
        return self.http.post("/admin/models", json={"action": action, "model": name})


@contextmanager
def serving(folder: Path, names: str = "abc", **options: Any) -> Iterator[Server]:
    """options: of the server."""
    given: dict[str, Any] = {"port": 0, "lazy": True, "shutdown_timeout": 0, "log_level": "error"}
    config = ServerConfig(**{**given, **options})
    engine = EngineConfig(model=str(folder))
    configs = shared_out([ModelConfig(name, engine, config) for name in names])
    plan = ModelPlan(configs, [folder] * len(configs), engine, config)
    started, stop, servers = threading.Event(), asyncio.Event(), list[Server]()

    async def main() -> None:
        fleets = [StartedModel.of(each, ("",), FACTORY, asleep=True) for each in configs]
        models = Models(hosted_models(fleets, [folder] * len(configs), plan), plan.budget)
        keeping = asyncio.create_task(models.gone())
        loop = asyncio.get_running_loop()
        with listening(config) as listener, httpx.Client(base_url=listener.url, timeout=20) as http:
            server = HttpServer(create_app(models, config), listener, config)
            servers.append(Server(http, models))
            running = asyncio.create_task(server.serve())
            loop.call_soon(started.set)
            await stop.wait()
            models.refuse("the server is shutting down")
            server.should_exit = True
            await running
        keeping.cancel()
        await models.close()

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=(main(),))
    thread.start()
    assert started.wait(20)
    try:
        yield servers[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(20)
        loop.close()
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def lazy(folder: Path) -> Iterator[Server]:
    """Two models, with room for one."""
    with pytest.MonkeyPatch.context() as patched, serving(folder, "ab", max_loaded_models=1) as server:
        patched.setattr(residence, "IDLE_STAYS", 0)
        patched.setattr(residence, "RETRY_SECONDS", 0.5)
        patched.setattr(keeper, "LOOK_SECONDS", 0.005)
        patched.setattr(early_events, "EVERY_SECONDS", 0.05)
        yield server


def test_what_is_known_of_a_model_is_told_before_it_is_loaded(lazy: Server) -> None:
    assert lazy.states() == {"a": "unloaded", "b": "unloaded"}
    assert lazy.http.get("/v1/models/a", headers={"anthropic-version": "2023-06-01"}).json()["id"] == "a"
    assert lazy.http.get("/health").status_code == lazy.http.get("/live").status_code == 200
    assert [card["name"] for card in lazy.http.get("/api/tags").json()["models"]] == ["a:latest", "b:latest"]
    assert lazy.http.post("/api/show", json={"model": "a"}).status_code == 200
    assert lazy.http.get("/api/ps").json()["models"] == []
    assert 'turnout:model_loaded{model_name="a"} 0.0' in lazy.http.get("/metrics").text
    assert lazy.http.get("/tokenizer_info", params={"model": "a"}).status_code == 200
    assert lazy.states() == {"a": "unloaded", "b": "unloaded"}


@pytest.mark.parametrize("path", ["scheduler", "kv", "plugins", "prefixes", "replicas", "rollout"])
def test_a_model_without_engines_answers_no_admin_request(lazy: Server, path: str) -> None:
    refused = lazy.http.get(f"/admin/{path}", params={"model": "a"})
    assert refused.status_code == 409 and refused.json()["error"]["code"] == "model_not_loaded"
    assert "'a' is unloaded" in refused.text and "POST /admin/models" in refused.text


def test_the_first_request_loads_its_model(lazy: Server) -> None:
    """A stream that waits gets comments meanwhile, and then what it would have got."""
    body = {"model": "a", "messages": MESSAGES, "max_tokens": 4, "stream": True}
    with lazy.http.stream("POST", "/v1/chat/completions", json=body) as response:
        text = response.read().decode()
    comments = re.findall(r"^: loading a, \d+%\n\n", text, re.MULTILINE)
    assert response.status_code == 200 and comments and text.startswith(": loading a")
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert text.endswith("data: [DONE]\n\n") and "hello" in text
    assert lazy.states() == {"a": "loaded", "b": "unloaded"}
    status = lazy.status("a")
    assert status["loads"] == 1 and status["load_seconds"] > 0 and status["unloads_in"] is None
    assert 'turnout:model_loaded{model_name="a"} 1.0' in lazy.http.get("/metrics").text
    assert [card["name"] for card in lazy.http.get("/api/ps").json()["models"]] == ["a:latest"]


def test_another_model_takes_its_room_and_what_it_was_told_stays(lazy: Server) -> None:
    """The scheduler that was chosen, and what was counted."""
    assert lazy.ask("a").status_code == 200
    chosen = lazy.http.post("/admin/scheduler", params={"model": "a"}, json={"name": "ljf"})
    assert chosen.status_code == 200, chosen.text
    counted = 'turnout:generation_tokens_total{model_name="a"} 8.0'
    assert counted in lazy.http.get("/metrics").text
    assert lazy.ask("b").json()["model"] == "b"
    assert lazy.states() == {"a": "unloaded", "b": "loaded"}
    text = lazy.http.get("/metrics").text
    assert counted in text and 'num_requests_running{model_name="a"}' not in text
    answer = lazy.http.post("/tokenize", json={"model": "a", "prompt": TEXT})
    assert answer.status_code == 200 and lazy.states()["a"] == "unloaded", "its length is known by now"


def test_a_load_that_fails_is_told_and_tried_again(
    lazy: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lazy.ask("a").status_code == 200
    lazy.http.post("/admin/scheduler", params={"model": "a"}, json={"name": "ljf"})
    lazy.change("unload", "a")
    eventually(lambda: lazy.states()["a"] == "unloaded")
    starts = tmp_path / "starts"
    starts.write_text("finds no room\nserves")
    monkeypatch.setenv(echo_engine.STARTS, str(starts))
    monkeypatch.setattr(residence, "RETRY_SECONDS", 60)
    body = {"model": "a", "prompt": TEXT, "max_tokens": 4, "stream": True}
    with lazy.http.stream("POST", "/v1/completions", json=body) as response:
        text = response.read().decode()
    assert "the weights take 2 GiB, but 1 GiB is free" in text and '"code":"model_load_failed"' in text
    assert text.endswith("data: [DONE]\n\n")
    card = lazy.http.get("/v1/models/a").json()
    assert "2 GiB" in card["reason"] and card["state"] == "failed"
    assert lazy.http.get("/health", params={"model": "a"}).json()["status"] == "failed"
    assert lazy.http.get("/health").status_code == 200
    refused = lazy.ask("a")
    assert refused.status_code == 503 and int(refused.headers["retry-after"]) >= 1
    monkeypatch.setattr(residence, "RETRY_SECONDS", 0)
    eventually(lambda: not lazy.status("a")["retry_in"])
    assert lazy.http.get("/health", params={"model": "a"}).json()["status"] == "ok"
    assert lazy.ask("a").status_code == 200
    chosen = lazy.http.get("/admin/scheduler", params={"model": "a"}).json()
    assert chosen["scheduler"] == "ljf", "what its engine was told before is told to this one"


def test_the_health_of_several_models_is_that_of_a_loaded_one(lazy: Server) -> None:
    """It said `unloaded` of the first model, whatever the others were."""
    assert lazy.ask("b").status_code == 200
    health = lazy.http.get("/health").json()
    assert health == {"status": "ok", "models": {"a": "ok", "b": "ok"}}
    lazy.change("unload", "b")
    eventually(lambda: lazy.states()["b"] == "unloaded")
    assert lazy.http.get("/health").json()["state"] == "unloaded"


def test_clients_of_ollama_say_how_long_it_stays(lazy: Server) -> None:
    answer = lazy.http.post("/api/generate", json={"model": "a", "keep_alive": "1h"})
    assert answer.status_code == 200 and answer.json()["done_reason"] == "load"
    assert 3500 < lazy.status("a")["unloads_in"] <= 3600
    (running,) = lazy.http.get("/api/ps").json()["models"]
    assert not running["expires_at"].startswith("2318")
    bad = lazy.http.post("/api/generate", json={"model": "a", "keep_alive": "soon"})
    assert bad.status_code == 400 and "keep_alive" in bad.text
    answer = lazy.http.post("/api/generate", json={"model": "a", "keep_alive": 0})
    assert answer.json()["done_reason"] == "unload"
    eventually(lambda: lazy.states()["a"] == "unloaded")


@pytest.mark.parametrize(
    ("path", "nothing"), [("/api/embed", {"input": []}), ("/api/embed", {}), ("/api/embeddings", {})]
)
def test_no_text_of_ollamas_embeddings_loads_and_unloads_a_model(
    lazy: Server, path: str, nothing: dict[str, Any]
) -> None:
    """It did neither."""
    answer = lazy.http.post(path, json={"model": "a", "keep_alive": "1h", **nothing})
    assert answer.status_code == 200 and lazy.states()["a"] == "loaded"
    assert lazy.http.post(path, json={"model": "a", "keep_alive": 0, **nothing}).status_code == 200
    eventually(lambda: lazy.states()["a"] == "unloaded")


def test_ollamas_answers_tell_how_long_a_model_took_to_load(lazy: Server) -> None:
    """It was 0, and the time to load was missing in all that the request took."""
    asked = {"prompt": "x", "stream": False, "options": {"num_predict": 2}}
    for name in "ab":  # each takes the other's place
        first, again = (
            lazy.http.post("/api/generate", json={"model": name, **asked}, timeout=60).json()
            for _ in range(2)
        )
        assert first["total_duration"] >= first["load_duration"] + first["prompt_eval_duration"]
        assert again["load_duration"] == 0
    assert first["load_duration"] > 0


@pytest.mark.parametrize("path", ["replicas", "rollout"])
def test_a_model_that_is_being_unloaded_gets_and_loses_no_engine(folder: Path, path: str) -> None:
    """It waited for the end of that, and its requests for the model, as long as a load may take."""
    with serving(folder, "ab", replicas=2) as server:
        assert server.ask("a").status_code == 200
        with ThreadPoolExecutor(2) as pool:
            running = pool.submit(server.ask, "a", max_tokens=90, user="brisk")
            eventually(lambda: not server.models.all[0].arms.idle)
            assert server.change("unload", "a").status_code == 200
            waiting = pool.submit(server.ask, "a")
            body = {"action": "drain", "replica": "0"}
            if path == "rollout":
                body = {"action": "start", "changes": {"max_num_seqs": 4}}
            refused = server.http.post(f"/admin/{path}", params={"model": "a"}, json=body)
            assert refused.status_code == 409 and refused.json()["error"]["code"] == "model_busy"
            assert "'a' is being unloaded; keep it" in refused.text
            assert running.result(20).status_code == waiting.result(20).status_code == 200
        assert server.status("a")["loads"] == 2


def test_commands_are_checked(lazy: Server) -> None:
    assert lazy.change("pin", "a").status_code == 409, "b would have no room"
    assert "could never be loaded" in lazy.change("pin", "a").text
    assert lazy.change("load", "c").status_code == 404
    assert lazy.change("close", "a").status_code == 400


# ------------------------------------------------------------------ processes


@pytest.mark.slow
def test_ctrl_c_ends_a_server_that_loads(folder: Path, tmp_path: Path) -> None:
    file = settings(tmp_path, f"lazy: true\nmodels:\n  a: {folder}\n  b: {folder}\n")
    process = ServerProcess(SCRIPT, file)
    try:
        url = process.url()
        assert "loaded by its first request" in process.text() and not process.children()
        answers: list[int] = []

        def ask() -> None:
            body = {"model": "a", "prompt": TEXT, "max_tokens": 4}
            answers.append(httpx.post(f"{url}/v1/completions", json=body, timeout=20).status_code)

        asking = threading.Thread(target=ask)
        asking.start()
        eventually(process.children)
        began = time.monotonic()
        process.popen.send_signal(signal.SIGINT)
        assert process.popen.wait(20) == 0 and time.monotonic() - began < 8
        asking.join(20)
        assert answers == [503]
    finally:
        process.end()


@pytest.mark.slow
def test_of_a_thousand_requests_over_three_models_none_is_lost(folder: Path) -> None:
    """With room for two, from forty clients at once."""
    with serving(folder, max_loaded_models=2) as server:
        failed: list[str] = []
        longest = 0.0

        def client(number: int) -> None:
            nonlocal longest
            with httpx.Client(base_url=server.http.base_url, timeout=120) as http:
                for turn in range(25):
                    name = "abc"[(number + turn * (1 + number % 3)) % 3]
                    body = {"model": name, "prompt": TEXT, "max_tokens": 4, "stream": bool(turn % 2)}
                    began = time.monotonic()
                    answer = http.post("/v1/completions", json=body)
                    longest = max(longest, time.monotonic() - began)
                    if answer.status_code != 200 or '"error"' in answer.text:
                        failed.append(answer.text)

        clients = [threading.Thread(target=client, args=(number,)) for number in range(40)]
        for each in clients:
            each.start()
        for each in clients:
            each.join()
        assert not failed, failed[:3]
        assert sum(server.status(name)["loads"] for name in "abc") >= 4
        assert longest < 60
        print(f"longest wait {longest:.1f} s", [server.status(name)["loads"] for name in "abc"])


# ------------------------------------------------------------------ what is refused before anything starts


def test_options_that_do_not_go_together(folder: Path) -> None:
    engine = EngineConfig(model=str(folder))
    for options, message in (
        ({"lazy": True, "ab": ("x:scheduler=ljf",)}, "--lazy, .* do not go with --ab"),
        ({"unload_after": 5.0, "replica": ("tcp://h:1",)}, "do not go with --replica"),
    ):
        config = ServerConfig(**options)
        with pytest.raises(ConfigError, match=message):
            ModelPlan([ModelConfig("a", engine, config)], [], engine, config)


def test_the_server_starts_with_what_there_is_room_for(folder: Path) -> None:
    config = ServerConfig(max_loaded_models=2)
    engine = EngineConfig(model=str(folder))
    configs = shared_out([ModelConfig(name, engine, config, pin=name == "c") for name in "abc"])
    plan = ModelPlan(configs, [], engine, config)
    assert plan.at_start == {"a", "c"}, "the pinned one first"
