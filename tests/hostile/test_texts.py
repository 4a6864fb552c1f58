"""Texts that take long to tokenize, to render or to decode."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tiny_server import TinyServer

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
TWO_MB = "a b " * 2**19


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (COMPLETIONS, {"prompt": TWO_MB}, "prompt"),
        (COMPLETIONS, {"prompt": [TWO_MB, "a"]}, "prompt"),
        (COMPLETIONS, {"prompt": [7] * 3000}, "prompt"),
        (CHAT, {"messages": [{"role": "user", "content": TWO_MB}]}, "messages"),
        (CHAT, {"messages": [{"role": "user", "content": "a"}] * 16_385}, "messages"),
        ("/tokenize", {"prompt": TWO_MB}, "prompt"),
        ("/detokenize", {"tokens": [7] * (2**18 + 1)}, "tokens"),
        ("/detokenize", {"tokens": [2**31]}, "tokens[0]"),
    ],
    ids=["prompt", "one of two", "tokens", "chat", "messages", "tokenize", "detokenize", "no token"],
)
def test_a_text_that_is_too_long_is_refused(
    tiny: TinyServer, path: str, body: dict[str, Any], param: str
) -> None:
    response = tiny.post(path, body)
    assert response.status_code == 400, response.text[:300]
    assert response.json()["error"]["param"] == param


def test_of_many_long_texts_some_are_refused_at_once(tiny: TinyServer) -> None:
    """A hundred of 1 MB waited for half a second each."""
    before, text = tiny.memory(), "a b " * 2**16
    with ThreadPoolExecutor(24) as pool:
        asked = [pool.submit(tiny.post, "/tokenize", {"prompt": text}) for _ in range(24)]
        assert tiny.post("/tokenize", {"prompt": "a b " * 2**14}).json()["count"] == 2**15 + 1
        answers = [each.result() for each in asked]
    served = [answer for answer in answers if answer.status_code == 200]
    refused = [answer for answer in answers if answer.status_code == 503]
    assert len(served) + len(refused) == len(answers) and served and refused
    assert {answer.json()["count"] for answer in served} == {2**17 + 1}
    assert {answer.headers["Retry-After"] for answer in refused} == {"1"}
    assert tiny.memory() - before < 500e6
    tiny.check()


@pytest.mark.slow
def test_the_memory_of_many_long_texts_is_bounded(tiny: TinyServer) -> None:
    """/tokenize of 30 MB took 8 GB, and eight of them ended the server."""
    before = tiny.memory()
    text = "a b " * 2**18
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: tiny.post("/tokenize", {"prompt": text}), range(8)))
    assert {answer.json()["count"] for answer in answers if answer.status_code == 200} == {2**19 + 1}
    assert tiny.memory() - before < 1.5e9


@pytest.mark.slow
def test_30_megabytes(tiny: TinyServer) -> None:
    before = tiny.memory()
    for path, body in (
        ("/tokenize", {"prompt": "a b " * 7_500_000}),
        (COMPLETIONS, {"prompt": "a b " * 7_500_000}),
        (CHAT, {"messages": [{"role": "user", "content": "a b " * 7_500_000}]}),
    ):
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _, path=path, body=body: tiny.post(path, body), range(4)))  # type: ignore[misc]
        assert {answer.status_code for answer in answers} <= {400, 503}
    assert tiny.memory() - before < 1.5e9
