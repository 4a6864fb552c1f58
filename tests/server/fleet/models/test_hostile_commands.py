"""Odd commands to load, unload and pin models, and odd ``keep_alive``s: refused or obeyed, never a fault."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from running_server import eventually
from test_models_on_demand import Server, serving

from turnout.server.fleet.models import keeper, residence

Answered = tuple[httpx.Response, tuple[int, ...]]
Sender = Callable[[httpx.Client, random.Random], Answered]
KEY = {"Authorization": "Bearer admin"}
PATH = "/admin/models"


@pytest.fixture(scope="module")
def guarded(folder: Path) -> Iterator[Server]:
    """Two models with two engines each, with room for one model; commands need a key."""
    keys = {"admin_key": ("admin",), "api_key": ("user",)}
    with (
        pytest.MonkeyPatch.context() as patched,
        serving(folder, "ab", max_loaded_models=1, replicas=2, **keys) as server,
    ):
        patched.setattr(residence, "IDLE_STAYS", 0)
        patched.setattr(residence, "LEAST_STAY_SECONDS", 0.0)
        patched.setattr(keeper, "LOOK_SECONDS", 0.005)
        server.http.headers["Authorization"] = "Bearer user"
        yield server


def states(server: Server) -> dict[str, str]:
    models = server.http.get(PATH, headers=KEY).json()["models"]
    return {model["name"]: model["state"] for model in models}


def command(server: Server, action: str, name: str) -> httpx.Response:
    return server.http.post(PATH, json={"action": action, "model": name}, headers=KEY)


@pytest.mark.parametrize("given", [None, "wrong", "user"])
def test_without_the_admin_key_nobody_commands(guarded: Server, given: str | None) -> None:
    headers = {"Authorization": f"Bearer {given}" if given else ""}
    for method in ("GET", "POST"):
        body = {"json": {"action": "load", "model": "a"}} if method == "POST" else {}
        assert guarded.http.request(method, PATH, headers=headers, **body).status_code == 401
    assert set(states(guarded).values()) == {"unloaded"}


DEEP = b'{"action":' + b"[" * 10_000 + b"]" * 10_000 + b"}"


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"", 400, "JSON"),
        (b"{", 400, "JSON"),
        (b"\xff\xfe", 400, ""),
        (b"null", 400, ""),
        (b'["load"]', 400, ""),
        (b"{}", 400, "action"),
        (b'{"action": null, "model": "a"}', 400, "action"),
        (b'{"action": "LOAD", "model": "a"}', 400, "'load', 'unload', 'pin' or 'unpin'"),
        (b'{"action": ["load"], "model": "a"}', 400, "action"),
        (b'{"action": "load", "model": 5}', 400, "model"),
        (b'{"action": "load", "model": "a", "force": true}', 400, "force"),
        (b'{"action": "load"}', 400, "several models are served"),
        (b'{"action": "load", "model": ""}', 404, "'a', 'b'"),
        (b'{"action": "load", "model": "a\\u0000"}', 404, "'a', 'b'"),
        (json.dumps({"action": "load", "model": "a" * 10**5}).encode(), 404, "not served here"),
        (DEEP, 400, ""),
    ],
)
def test_an_odd_body_is_refused(guarded: Server, body: bytes, status: int, words: str) -> None:
    headers = {**KEY, "Content-Type": "application/json"}
    refused = guarded.http.post(PATH, content=body, headers=headers)
    assert refused.status_code == status, refused.text
    assert words in refused.json()["error"]["message"]
    assert set(states(guarded).values()) == {"unloaded"}


def test_commands_while_a_model_loads(guarded: Server) -> None:
    """It is loaded once however often that is said, and unloaded only when it has been loaded."""
    for _ in range(5):
        assert command(guarded, "load", "a").status_code == 200
    eventually(lambda: states(guarded)["a"] in ("loading", "loaded"))
    refused = command(guarded, "unload", "a")
    if refused.status_code == 409:
        assert "is being loaded" in refused.text or "replicas that come" in refused.text
    eventually(lambda: states(guarded)["a"] in ("loaded", "unloaded"), 20)
    assert guarded.ask("a").status_code == 200
    models = guarded.http.get(PATH, headers=KEY).json()["models"]
    assert models[0]["loads"] <= 2


def test_a_model_on_demand_may_have_several_engines(guarded: Server) -> None:
    """They start and end together."""
    for name in "abab":
        assert guarded.ask(name).status_code == 200
        told = guarded.http.get("/admin/replicas", params={"model": name}, headers=KEY).json()["replicas"]
        assert len(told) == 2, told


@pytest.mark.parametrize("value", [-1, "-1", "-5m", 1e308, "9" * 60 + "h", "1h30m", 86_400 * 10**6])
def test_a_model_stays_as_long_as_is_said(guarded: Server, value: object) -> None:
    kept = guarded.http.post("/api/generate", json={"model": "a", "keep_alive": value})
    assert kept.status_code == 200, kept.text
    (running,) = guarded.http.get("/api/ps").json()["models"]
    assert running["expires_at"] > "2026"
    assert states(guarded)["a"] == "loaded"


@pytest.mark.parametrize("value", ["", "soon", "5 minutes", "5m-", "1e3", "9" * 65, True, [], {"m": 5}])
def test_another_duration_is_refused(guarded: Server, value: object) -> None:
    refused = guarded.http.post("/api/generate", json={"model": "a", "keep_alive": value})
    assert refused.status_code == 400 and "keep_alive" in refused.text


@pytest.mark.parametrize("value", ["1" + 400 * "0", "1e400", "-1e400", "NaN"])
def test_numbers_beyond_all_bounds_are_refused_or_mean_for_ever(guarded: Server, value: str) -> None:
    body = b'{"model": "a", "keep_alive": %s}' % value.encode()
    answer = guarded.http.post("/api/generate", content=body)
    assert answer.status_code in (200, 400), answer.text
    assert guarded.http.get("/api/ps").status_code == 200


class Crowd:
    """Threads that send until a time, and what was answered otherwise than expected."""

    def __init__(self, server: Server, seconds: float) -> None:
        self.wrong: list[str] = []
        self._url, self._until = server.http.base_url, time.monotonic() + seconds

    def run(self) -> None:
        senders = [*[self.command] * 4, *[self.ask] * 6, *[self.keep] * 2]
        threads = [threading.Thread(target=self.send, args=each) for each in enumerate(senders)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(90)

    def send(self, seed: int, sender: Sender) -> None:
        rng = random.Random(seed)
        with httpx.Client(base_url=self._url, timeout=60, headers={"Authorization": "Bearer user"}) as http:
            while time.monotonic() < self._until:
                answer, expected = sender(http, rng)
                if answer.status_code not in expected:
                    self.wrong.append(answer.text)

    def command(self, http: httpx.Client, rng: random.Random) -> Answered:
        body = {"action": rng.choice(["load", "unload", "pin", "unpin"]), "model": rng.choice("ab")}
        return http.post(PATH, json=body, headers=KEY), (200, 409)

    def ask(self, http: httpx.Client, rng: random.Random) -> Answered:
        body = {"model": rng.choice("ab"), "prompt": "hello", "max_tokens": 4}
        return http.post("/v1/completions", json=body), (200, 503)

    def keep(self, http: httpx.Client, rng: random.Random) -> Answered:
        body = {"model": rng.choice("ab"), "keep_alive": rng.choice([0, -1, "1ms"])}
        return http.post("/api/generate", json=body), (200, 503)


@pytest.mark.slow
def test_commands_and_requests_at_once(guarded: Server) -> None:
    """Whatever comes between: requests are answered or told why not, and both models serve in the end.

    Neither can be pinned: the other would have no room.
    """
    crowd = Crowd(guarded, 10)
    crowd.run()
    assert not crowd.wrong, crowd.wrong[:3]
    for name in "ab":
        assert guarded.ask(name).status_code == 200
