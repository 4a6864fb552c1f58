"""Parameters that multiply: by prompts, by choices, by steps."""

from __future__ import annotations

import json
import random
import re
import threading
import time
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from tiny_server import TinyServer

COMPLETIONS = "/v1/completions"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": ["a"] * 2048, "n": 3}, "n"),
        ({"prompt": ["a"] * 33, "n": 125}, "n"),
        ({"prompt": [[7] * 2000] * 1100}, "prompt"),
        ({"stop": ["a" * 4097]}, "stop"),
        ({"bad_words": ["word"] * 4097}, "bad_words"),
        ({"stop_token_ids": [1] * 4097}, "stop_token_ids"),
        ({"logit_bias": {str(token): 1 for token in range(4097)}}, "logit_bias"),
        ({"prompt": ["a"] * 600, "allowed_token_ids": list(range(4000))}, "prompt"),
        ({"prompt": ["a " * 900] * 1000, "prompt_logprobs": 20}, "prompt_logprobs"),
        ({"prompt": ["a"] * 32, "n": 128, "max_tokens": 2000, "logprobs": 20}, "logprobs"),
        ({"prompt": ["word " * 900] * 60, "n": 64, "echo": True}, "echo"),
        ({"prompt": ["a " * 900] * 60, "n": 128, "return_token_ids": True}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
    ],
    ids=lambda value: ", ".join(value) if isinstance(value, dict) else None,
)
def test_what_multiplies_is_bounded(tiny: TinyServer, body: dict[str, Any], param: str) -> None:
    response = tiny.post(COMPLETIONS, {"prompt": "a", "max_tokens": 1, **body})
    assert response.status_code == 400, response.text[:300]
    error = response.json()["error"]
    assert error["param"] == param
    assert "e+" not in error["message"]


def slowest_answer(tiny: TinyServer, meanwhile: dict[str, Any]) -> float:
    """The longest that a small request took while others asked for what is given, in seconds."""
    others = threading.Thread(target=tiny.post, args=(COMPLETIONS, meanwhile))
    others.start()
    slowest = 0.0
    while others.is_alive():
        begun = time.perf_counter()
        assert tiny.answer() == tiny.tokens
        slowest = max(slowest, time.perf_counter() - begun)
    others.join()
    return slowest


def test_a_small_request_passes_most_prompts_of_a_large_one(tiny: TinyServer) -> None:
    """All stood in line before it, so it was answered when they had been."""
    heavy = {"prompt": ["def f("] * 1024, "max_tokens": 8, "ignore_eos": True}
    done: list[float] = []

    def ask() -> None:
        assert tiny.post(COMPLETIONS, heavy).status_code == 200
        done.append(time.monotonic())

    others = threading.Thread(target=ask)
    others.start()
    while 'num_requests_running{model_name="turnout-tiny"} 0.0' in httpx.get(f"{tiny.url}/metrics").text:
        time.sleep(0.01)
    begun = time.monotonic()
    assert tiny.answer() == tiny.tokens
    answered = time.monotonic()
    others.join()
    assert answered - begun < 0.7 * (done[0] - begun)


def test_thousands_of_bad_words_hold_up_no_other_request(tiny: TinyServer) -> None:
    """Each was compared with the text of each choice in every step: others waited for 9 to 30 seconds."""
    letters = random.Random(1)
    words = ["".join(letters.choices("abcdefgh", k=9)) for _ in range(4096)]
    heavy = {"prompt": "def f(", "n": 64, "max_tokens": 16, "ignore_eos": True, "bad_words": words}
    plain = {name: value for name, value in heavy.items() if name != "bad_words"}
    assert slowest_answer(tiny, heavy) < 4 * slowest_answer(tiny, plain) + 2


def test_a_part_of_a_response_whose_type_is_no_text(tiny: TinyServer) -> None:
    """It got 500."""
    said = {"role": "user", "content": [{"type": [], "text": "a"}]}
    refused = tiny.post("/v1/responses", {"input": [said], "max_output_tokens": 2})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "input"


@pytest.mark.parametrize("schema", ["", "5", "[" * 5000])
def test_a_schema_that_is_no_json_is_refused_beside_tools_too(tiny: TinyServer, schema: str) -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    asked = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 4, "guided_json": schema}
    response = tiny.post("/v1/chat/completions", {**asked, "tools": tools})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "guided_json"


@pytest.mark.slow
def test_many_requests_of_thousands_of_prompts_share_the_engine(tiny: TinyServer) -> None:
    """Seventeen of them took all places: others got 503, and the server's process a gigabyte of tasks."""
    before = tiny.memory()
    content = json.dumps({"prompt": ["a"] * 2048, "max_tokens": 40, "ignore_eos": True}).encode()
    head = f"POST {COMPLETIONS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content
    with ExitStack() as stack:
        for _ in range(24):
            stack.enter_context(tiny.connect()).sendall(request)
        while in_engine(tiny) < 200:
            time.sleep(0.05)
        for _ in range(3):
            tiny.check()
            assert in_engine(tiny) <= 224 + 24
        assert tiny.memory() - before < 100e6


def in_engine(tiny: TinyServer) -> float:
    """The requests that run or wait in the engine."""
    text = httpx.get(f"{tiny.url}/metrics", timeout=60).text
    return sum(map(float, re.findall(r"^turnout:num_requests_(?:running|waiting){.*} (.*)$", text, re.M)))
