"""How the KV pool stands, and prefixes that are kept, over a real socket."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from asking import CHAT, COMPLETIONS
from echo_engine import BYTES_PER_TOKEN, CONTEXT, POOL, VOCABULARY
from running_server import RunningServer, Start, eventually

KV = "/admin/kv"
PREFIXES = "/admin/prefixes"
BLOCK = 16


@pytest.fixture
def fresh(start: Start) -> RunningServer:
    """One of its own: what others cached would be found."""
    return start()


def shown(server: RunningServer, **query: str) -> dict[str, Any]:
    response = server.http.get(KV, params=query)
    assert response.status_code == 200, response.text
    return response.json()


def pin(server: RunningServer, name: str = "system", **body: object) -> dict[str, Any]:
    response = server.post(PREFIXES, name=name, **body)
    assert response.status_code == 200, response.text
    return response.json()


def cached_tokens(server: RunningServer, prompt: list[int], **body: object) -> int:
    """How much of a prompt another request found computed."""
    response = server.post(COMPLETIONS, prompt=prompt, max_tokens=1, **body)
    assert response.status_code == 200, response.text
    return response.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def refusal(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error"
    return error


# ------------------------------------------------------------------ how the pool stands


def test_an_idle_pool_is_free(fresh: RunningServer) -> None:
    idle = shown(fresh)
    assert idle["backend"] == "paged"
    assert (idle["capacity"], idle["free"], idle["held"]) == (POOL, POOL, 0)
    assert (idle["waste"], idle["hit_rate"], idle["unit"]) == (0, 0, BLOCK)
    assert idle["bytes_per_token"] == BYTES_PER_TOKEN
    assert idle["bytes"]["capacity"] == POOL * BYTES_PER_TOKEN


def test_what_runs_is_held_and_what_ended_is_cached(fresh: RunningServer) -> None:
    prompt = list(range(1, 41))
    with ThreadPoolExecutor(1) as pool:
        stream = pool.submit(fresh.post, COMPLETIONS, prompt=prompt, max_tokens=20, user="slow")
        eventually(lambda: shown(fresh)["computed"] >= len(prompt))
        running = shown(fresh)
        assert not stream.done()
    assert running["held"] == running["capacity"] - running["free"] >= 3 * BLOCK
    assert running["held"] % BLOCK == 0
    assert running["waste"] == pytest.approx(1 - running["computed"] / running["held"], abs=1e-4)
    eventually(lambda: shown(fresh)["held"] == 0)
    ended = shown(fresh)
    assert ended["cached"] == 3 * BLOCK, "59 tokens have their KV: the 60th was never fed back"
    assert (ended["lookups"], ended["hits"]) == (40, 0)
    assert cached_tokens(fresh, prompt) == 2 * BLOCK
    again = shown(fresh)
    assert (again["lookups"], again["hits"], again["hit_rate"]) == (80, 32, 0.4)


def test_the_map_is_left_out_unless_asked_for(fresh: RunningServer) -> None:
    assert "states" not in shown(fresh)
    assert "states" not in shown(fresh, map="false")
    assert shown(fresh, map="true")["states"] == [["free", POOL // BLOCK]]
    cached_tokens(fresh, list(range(1, 41)))
    states = shown(fresh, map="true")["states"]
    assert sum(count for _, count in states) == POOL // BLOCK
    assert sum(count for state, count in states if state == "cached") == 2
    assert refusal(fresh.http.get(KV, params={"map": "maybe"}), 400)["param"] == "map"


def test_a_pool_without_blocks_stands_somehow_too(start: Start) -> None:
    server = start({"kv": "contiguous"})
    idle = shown(server, map="true")
    assert (idle["backend"], idle["capacity"], idle["cached"]) == ("contiguous", POOL, 0)
    assert sum(count for _, count in idle["states"]) * idle["unit"] == POOL


# ------------------------------------------------------------------ pinning


def test_a_prefix_is_pinned_computed_and_found(fresh: RunningServer) -> None:
    prefix = list(range(1, 41))
    assert pin(fresh, prompt=prefix) == {"name": "system", "tokens": 32, "cached": 32}
    assert fresh.http.get(PREFIXES).json() == {"prefixes": [{"name": "system", "tokens": 32, "cached": 32}]}
    assert shown(fresh)["pinned"] == 32
    assert cached_tokens(fresh, [*prefix, 50, 51]) == 32


def test_a_prefix_may_wait_for_the_first_who_needs_it(fresh: RunningServer) -> None:
    prefix = list(range(1, 41))
    assert pin(fresh, prompt=prefix, compute=False) == {"name": "system", "tokens": 32, "cached": 0}
    assert cached_tokens(fresh, [*prefix, 50]) == 0
    assert fresh.http.get(PREFIXES).json()["prefixes"][0]["cached"] == 32


def test_text_and_conversations_are_tokenized_as_requests_are(fresh: RunningServer) -> None:
    text = "You are a parrot. You say nothing but what has been said to you before. " * 2
    pinned = pin(fresh, prompt=text)
    assert pinned["cached"] == pinned["tokens"] > 0
    response = fresh.post(COMPLETIONS, prompt=text + "Hello", max_tokens=1)
    assert response.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == pinned["tokens"]

    talk = text.replace("parrot", "magpie")
    pinned = pin(fresh, "chat", messages=[{"role": "system", "content": talk}])
    messages = [{"role": "system", "content": talk}, {"role": "user", "content": "Hello"}]
    response = fresh.post(CHAT, messages=messages, max_tokens=1)
    assert response.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == pinned["tokens"]


def test_prefixes_are_listed_by_name_replaced_and_removed(fresh: RunningServer) -> None:
    pin(fresh, "b", prompt=list(range(1, 33)))
    pin(fresh, "a", prompt=list(range(2, 50)))
    names = [prefix["name"] for prefix in fresh.http.get(PREFIXES).json()["prefixes"]]
    assert names == ["a", "b"]
    assert pin(fresh, "b", prompt=list(range(3, 60)))["tokens"] == 48
    assert shown(fresh)["pinned"] == 96
    assert fresh.http.delete(f"{PREFIXES}/b").json() == {"name": "b", "deleted": True}
    assert [prefix["name"] for prefix in fresh.http.get(PREFIXES).json()["prefixes"]] == ["a"]
    assert shown(fresh)["pinned"] == 48


def test_pins_stay_when_the_engine_dies(fresh: RunningServer) -> None:
    pin(fresh, "kept", prompt=list(range(1, 41)))
    pin(fresh, "gone", prompt=list(range(2, 42)))
    fresh.http.delete(f"{PREFIXES}/gone")
    os.kill(fresh.client.pid, signal.SIGKILL)
    eventually(lambda: fresh.client.restarting)
    eventually(lambda: not fresh.client.restarting, 15)
    assert fresh.http.get(PREFIXES).json()["prefixes"] == [{"name": "kept", "tokens": 32, "cached": 0}]
    assert cached_tokens(fresh, list(range(1, 43))) == 0
    assert fresh.http.get(PREFIXES).json()["prefixes"][0]["cached"] == 32


def test_only_the_same_salt_shares(fresh: RunningServer) -> None:
    prompt = list(range(1, 41))
    assert cached_tokens(fresh, prompt, cache_salt="red") == 0
    assert cached_tokens(fresh, prompt, cache_salt="blue") == 0
    assert cached_tokens(fresh, prompt) == 0
    assert cached_tokens(fresh, prompt, cache_salt="red") == 32
    pin(fresh, prompt=list(range(100, 140)), cache_salt="red")
    assert cached_tokens(fresh, list(range(100, 142))) == 0
    assert cached_tokens(fresh, list(range(100, 142)), cache_salt="red") == 32


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        ({"prompt": "a"}, "name", "this field is required"),
        (
            {"name": "a/b", "prompt": "a"},
            "name",
            "name: 1 to 64 letters, digits, '.', '_' and '-' are expected",
        ),
        ({"name": "_sys", "prompt": "a"}, "name", "the first a letter or digit (given: '_sys')"),
        ({"name": "a\n", "prompt": "a"}, "name", "the first a letter or digit"),
        ({"name": "a" * 65, "prompt": "a"}, "name", "1 to 64 letters"),
        ({"name": 5, "prompt": "a"}, "name", "valid string"),
        ({"name": "a"}, "prompt", "either prompt or messages"),
        ({"name": "a", "prompt": ""}, "prompt", "either prompt or messages"),
        ({"name": "a", "prompt": []}, "prompt", "either prompt or messages"),
        (
            {"name": "a", "prompt": "a", "messages": [{"role": "user", "content": "b"}]},
            "prompt",
            "either prompt or messages",
        ),
        ({"name": "a", "prompt": ["a"]}, "prompt", "prompt: a string or a list of token ids is expected"),
        (
            {"name": "a", "prompt": [-1]},
            "prompt",
            "a string or a list of token ids is expected (given: [-1])",
        ),
        ({"name": "a", "prompt": [1.5]}, "prompt", "a string or a list of token ids is expected"),
        ({"name": "a", "prompt": [[1, 2]]}, "prompt", "a string or a list of token ids is expected"),
        ({"name": "a", "prompt": 5}, "prompt", "a string or a list of token ids is expected (given: 5)"),
        ({"name": "a", "prompt": [VOCABULARY]}, "prompt", f"token id {VOCABULARY} is outside the vocabulary"),
        ({"name": "a", "prompt": [1] * CONTEXT}, "prompt", f"the prefix has {CONTEXT} and at least one"),
        ({"name": "a", "prompt": [1] * 20, "cache_salt": ""}, "cache_salt", "at least 1 character"),
        ({"name": "a", "prompt": [1] * 20, "compute": "no"}, "compute", "valid boolean"),
        ({"name": "a", "prompt": [1] * 20, "salt": "x"}, "salt", "not permitted"),
    ],
)
def test_what_is_wrong_is_named_and_pins_nothing(
    server: RunningServer, body: dict[str, object], param: str | None, message: str
) -> None:
    error = refusal(server.post(PREFIXES, **body), 400)
    assert message in error["message"]
    if param is not None:
        assert error["param"] == param
    assert server.http.get(PREFIXES).json() == {"prefixes": []}


def test_a_prefix_that_fills_no_block_is_refused(server: RunningServer) -> None:
    error = refusal(server.post(PREFIXES, name="a", prompt=list(range(1, BLOCK))), 400)
    assert "15 tokens" in error["message"] and "16" in error["message"]
    assert server.http.get(PREFIXES).json() == {"prefixes": []}


def test_what_is_not_there_cannot_be_removed(server: RunningServer) -> None:
    error = refusal(server.http.delete(f"{PREFIXES}/nothing"), 404)
    assert error["code"] == "prefix_not_found" and "'nothing'" in error["message"]


def test_a_backend_that_keeps_no_prefixes_says_so_by_name(start: Start) -> None:
    server = start({"kv": "contiguous"})
    for response in (
        server.post(PREFIXES, name="a", prompt=list(range(1, 41))),
        server.http.get(PREFIXES),
        server.http.delete(f"{PREFIXES}/a"),
    ):
        error = refusal(response, 409)
        assert error["code"] == "prefixes_unsupported"
        assert "kv backend 'contiguous' keeps no prefixes" in error["message"]


def test_a_prefix_that_cannot_be_computed_now_is_pinned_all_the_same(start: Start) -> None:
    server = start({"max_waiting": 1, "max_num_seqs": 1})
    with ThreadPoolExecutor(2) as pool:
        streams = [pool.submit(server.post, COMPLETIONS, prompt="a", max_tokens=40, user="slow")]
        eventually(lambda: server.work() == 1)
        streams.append(pool.submit(server.post, COMPLETIONS, prompt="b", max_tokens=1))
        eventually(lambda: server.work() == 2)
        response = server.post(PREFIXES, name="a", prompt=list(range(1, 41)))
    assert all(stream.result().status_code == 200 for stream in streams)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (503, "prefix_not_computed")
    assert "is pinned" in error["message"] and "requests are waiting" in error["message"]
    assert server.http.get(PREFIXES).json()["prefixes"] == [{"name": "a", "tokens": 32, "cached": 0}]


def test_an_empty_salt_is_no_salt(server: RunningServer) -> None:
    error = refusal(server.post(COMPLETIONS, prompt="a", cache_salt=""), 400)
    assert error["param"] == "cache_salt"
