"""Attacks on the time of others: each is answered as it should be and soon, and others are served meanwhile.

`seconds` is what an attack may take on a machine that does nothing else; tests allow twenty times that.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from tiny_server import TinyServer

from turnout.core import limits

COMPLETIONS, CHAT, TOKENIZE, DETOKENIZE = (
    "/v1/completions",
    "/v1/chat/completions",
    "/tokenize",
    "/detokenize",
)
LOADED = 20


@dataclass(frozen=True)
class Attack:
    """A request, and what it is answered with."""

    name: str
    content: Callable[[], bytes]
    """The bytes that are sent."""
    status: int
    param: str | None = None
    seconds: float = 1.0

    def send(self, server: TinyServer) -> tuple[int, Any]:
        """The status, and the body."""
        answer = server.send(self.content())
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), body


def post(path: str, content: object) -> bytes:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


def completion(
    name: str, fields: Callable[[], dict[str, Any]], status: int, param: str | None = None, seconds: float = 1
) -> Attack:
    def content() -> bytes:
        return post(COMPLETIONS, {"prompt": "a", "max_tokens": 2, **fields()})

    return Attack(name, content, status, param, seconds)


def chat(
    name: str, messages: Callable[[], object], status: int, param: str | None = None, **fields: Any
) -> Attack:
    return Attack(
        name, lambda: post(CHAT, {"messages": messages(), "max_tokens": 2, **fields}), status, param
    )


def body(name: str, text: Callable[[], bytes], status: int, param: str | None = None) -> Attack:
    return Attack(name, lambda: post(COMPLETIONS, text()), status, param)


def raw(name: str, status: int, head: bytes, rest: bytes = b"") -> Attack:
    return Attack(name, lambda: head.replace(b"\n", b"\r\n") + b"\r\n" + rest, status)


def listed(item: bytes, number: int) -> bytes:
    return b",".join([item] * number)


USER = {"role": "user", "content": "a"}
LONG = limits.DETOKENIZED.whole
LISTS = [
    completion("200,000 biases", lambda: {"logit_bias": {str(i): 1 for i in range(200_000)}}, 413),
    completion(
        "a bias too many", lambda: {"logit_bias": {str(i): 1 for i in range(4097)}}, 400, "logit_bias"
    ),
    completion(
        "a bias for each token", lambda: {"logit_bias": {str(i): 1 for i in range(4096)}, "n": 8}, 200
    ),
    body("two million ids", lambda: b'{"prompt": [' + listed(b"7", 2_000_000) + b"]}", 400, "prompt"),
    body("text before ids", lambda: b'{"prompt": ["a", ' + listed(b"7", 600_000) + b"]}", 400, "prompt"),
    body("a list after ids", lambda: b'{"prompt": [' + listed(b"7", 600_000) + b", []]}", 400, "prompt"),
    body("ids in lists in lists", lambda: b'{"prompt": [[[' + listed(b"7", 600_000) + b"]]]}", 400, "prompt"),
    body("an object among ids", lambda: b'{"prompt": [{}, ' + listed(b"7", 600_000) + b"]}", 400, "prompt"),
    completion("lists that are too long", lambda: {"prompt": [[7] * 2100] * 400}, 400, "prompt"),
    completion("a prompt too many", lambda: {"prompt": [[7]] * 2049}, 400, "prompt"),
    completion("fractions for ids", lambda: {"prompt": [7.5] * 300_000}, 400, "prompt"),
    completion("large numbers for ids", lambda: {"prompt": [10**18] * 100_000}, 400, "prompt"),
    completion("truth for ids", lambda: {"prompt": [True] * 300_000}, 400, "prompt"),
    completion("the last id is negative", lambda: {"prompt": [7] * 400_000 + [-1]}, 400, "prompt"),
    completion("many stop tokens", lambda: {"stop_token_ids": [7] * 400_000}, 400, "stop_token_ids"),
    completion("many allowed tokens", lambda: {"allowed_token_ids": [7] * 400_000}, 400, "allowed_token_ids"),
    completion("the end of many allowed", lambda: {"allowed_token_ids": [7] * 200_000 + ["7"]}, 400),
    completion("many bad words", lambda: {"bad_words": ["ab"] * 90_000}, 400, "bad_words"),
]
TEXTS = [
    completion("escapes alone", lambda: {"prompt": "\0" * 1_000_000}, 400, "prompt"),
    completion("backslashes alone", lambda: {"prompt": "\\" * 4_000_000}, 400, "prompt"),
    completion("quotation marks in a list", lambda: {"prompt": ['"' * 400_000] * 8}, 400, "prompt"),
    completion("marks on one letter", lambda: {"prompt": "a" + "\u0301" * 300_000}, 400, "prompt"),
    completion("a word without end", lambda: {"prompt": "a" * 8_000_000}, 400, "prompt"),
    completion("32 long stops", lambda: {"stop": ["a" * 4000 + "b"] * 32, "max_tokens": 200}, 200, seconds=3),
    completion("a stop too many", lambda: {"stop": ["a"] * 33}, 400, "stop"),
    completion("a user of a megabyte", lambda: {"user": "u" * 2**20}, 200),
    completion("fields of a megabyte", lambda: {"metadata": ["m" * 100] * 10_000}, 200),
    Attack(
        "a text to tokenize",
        lambda: post(TOKENIZE, {"prompt": "a b " * 2**18, "return_token_strs": True}),
        200,
        seconds=3,
    ),
    Attack(
        "a text too long to tokenize", lambda: post(TOKENIZE, {"prompt": "a b " * 2**18 + "a"}), 400, "prompt"
    ),
    Attack("tokens to decode", lambda: post(DETOKENIZE, {"tokens": [5] * LONG}), 200),
    Attack("a token too many", lambda: post(DETOKENIZE, {"tokens": [5] * (LONG + 1)}), 400, "tokens"),
    Attack(
        "tokens that there are not",
        lambda: post(DETOKENIZE, {"tokens": [2**31 - 1] * 100_000}),
        400,
        "tokens",
    ),
]
PRODUCTS = [
    completion(
        "128 choices with logprobs", lambda: {"n": 128, "logprobs": 20, "max_tokens": 4}, 200, seconds=5
    ),
    completion("a choice too many", lambda: {"n": 129}, 400, "n"),
    completion(
        "logprobs of a long prompt", lambda: {"prompt": [7] * 1900, "prompt_logprobs": 20}, 200, seconds=5
    ),
    completion(
        "a streamed echo, 16 times",
        lambda: {"prompt": [7] * 400, "echo": True, "logprobs": 5, "n": 16, "stream": True},
        200,
        seconds=5,
    ),
    completion("the best of 128", lambda: {"best_of": 128, "max_tokens": 1}, 200, seconds=5),
    completion("500 prompts", lambda: {"prompt": ["a"] * 500}, 200, seconds=5),
    completion("2,048 prompts, three times", lambda: {"prompt": ["a"] * 2048, "n": 3}, 400, "n"),
    completion("beams without end", lambda: {"use_beam_search": True, "beam_width": 10**9}, 400),
]
FORMS = [
    completion("an expression of alternatives", lambda: {"guided_regex": "(a|aa|aaa)+" * 30}, 200, seconds=4),
    completion("an expression too long", lambda: {"guided_regex": "a" * 300_000}, 400),
    completion("a grammar that refers to itself", lambda: {"guided_grammar": "start: start"}, 400, seconds=4),
    completion("a choice of many", lambda: {"guided_choice": ["c"] * 10_001}, 400),
    completion(
        "a schema of many states",
        lambda: {"guided_json": {"type": "integer", "multipleOf": 999_979}},
        400,
        seconds=15,
    ),
]
CHATS = [
    chat("a message too many", lambda: [USER] * 16_385, 400, "messages"),
    chat("16,000 messages", lambda: [USER] * 16_000, 400, "messages"),
    chat(
        "a message of many parts",
        lambda: [{**USER, "content": [{"type": "text", "text": "a"}] * 5000}],
        400,
        "messages",
    ),
    chat("a role of a megabyte", lambda: [{"role": "r" * 2**20, "content": "a"}], 200),
    chat("many variables", lambda: [USER], 200, chat_template_kwargs={"x": list(range(100_000))}),
]
JSON = b"Host: localhost\nContent-Type: application/json\n"
HEADS = [
    raw("a negative length", 400, b"POST /v1/completions HTTP/1.1\n" + JSON + b"Content-Length: -1\n"),
    raw(
        "two lengths",
        400,
        b"POST /health HTTP/1.1\n" + JSON + b"Content-Length: 1\nContent-Length: 2\n",
        b"{}",
    ),
    raw(
        "chunks and a length",
        400,
        b"POST /v1/completions HTTP/1.1\n" + JSON + b"Transfer-Encoding: chunked\nContent-Length: 99999999\n",
    ),
    raw("a header without a colon", 400, b"GET /health HTTP/1.1\n" + JSON + b"nothing\n"),
    raw(
        "a header too many",
        431,
        b"GET /health HTTP/1.1\n" + JSON + b"".join(b"X-%d: 1\n" % i for i in range(129)),
    ),
    raw("a header of 100 KB", 431, b"GET /health HTTP/1.1\n" + JSON + b"X: " + b"x" * 100_000 + b"\n"),
]
ATTACKS = [*LISTS, *TEXTS, *PRODUCTS, *FORMS, *CHATS, *HEADS]


def test_there_are_fifty() -> None:
    assert len({attack.name for attack in ATTACKS}) == len(ATTACKS) >= 50


def marked(attack: Attack) -> ParameterSet:
    """One that may take the server long is a slow test."""
    return pytest.param(attack, id=attack.name, marks=[pytest.mark.slow] if attack.seconds > 10 else [])


@pytest.mark.parametrize("attack", [marked(each) for each in ATTACKS])
def test_it_is_answered_soon_and_others_are_served(tiny: TinyServer, attack: Attack) -> None:
    """The fixture asks for another client's tokens afterwards; here they are asked for meanwhile."""
    answers: list[str] = []
    other = threading.Thread(target=lambda: answers.append(tiny.answer()))
    other.start()
    begun = time.monotonic()
    status, content = attack.send(tiny)
    taken = time.monotonic() - begun
    other.join()
    assert status == attack.status, content[:500]
    assert taken < LOADED * attack.seconds
    assert answers == [tiny.tokens]
    if status != 200:
        error = json.loads(content)["error"]
        assert "Traceback" not in error["message"] and len(content) < 2000
        assert attack.param is None or error["param"].partition(".")[0].partition("[")[0] == attack.param, (
            error
        )
