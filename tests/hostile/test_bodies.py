"""Bodies that are small to send and large to decode, or that never end."""

from __future__ import annotations

import json
import threading
import time
from codecs import BOM_UTF8
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx
import pytest
from tiny_server import TinyServer

COMPLETIONS = "/v1/completions"
MILLION = 10**6


def error_of(response: httpx.Response) -> dict[str, str]:
    error: dict[str, str] = response.json()["error"]
    return error


def joined(item: bytes, number: int) -> bytes:
    return b",".join([item] * number)


def test_millions_of_empty_lists_are_refused_by_a_count_of_bytes(tiny: TinyServer) -> None:
    """27 MB of them took 3.3 seconds, in which no other client got a token, and most of a gigabyte."""
    before = tiny.memory()
    response = tiny.post(COMPLETIONS, b'{"prompt": [' + joined(b"[]", 9 * MILLION) + b"]}")
    assert response.status_code == 413
    assert "too many values" in error_of(response)["message"]
    assert tiny.memory() - before < 150e6


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (
            b'{"prompt": "a", ' + b",".join(b'"k%d": 1' % k for k in range(MILLION)) + b"}",
            413,
            "too many values",
        ),
        (b'{"prompt": "a", ' + b",".join(b'"k%d": 1' % k for k in range(1000)) + b"}", 400, "1,001 fields"),
        (b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400, "nested too deeply"),
        (b'{"prompt": "a", "vllm_xargs": {"x": ' + b"[" * 80 + b"]" * 80 + b"}}", 400, "nested too deeply"),
        (b'{"prompt": [' + joined(b'"a"', 100_000) + b"]}", 400, "at most 2048 prompts"),
        (b'{"prompt": "a", "guided_choice": [' + joined(b"1", 500_000) + b"]}", 400, "valid string"),
        (b'{"prompt": ' + b"9" * 5000 + b"}", 400, "out of range"),
        (b"[" * 30_000, 400, "nested too deeply"),
        (b"1", 400, "must be a JSON object"),
        (b"", 400, "not valid JSON: it is empty"),
        (b'{"prompt": "abc\xff"}', 400, "not valid JSON: it is not UTF-8: invalid start byte (byte 15)"),
        (b"\xff" * 100_000, 400, "not valid JSON"),
        (rb'{"prompt": "\ud800x"}', 400, r"not valid JSON: \ud800 is half of a surrogate pair (byte 12)"),
        (
            rb'{"prompt": "\ud83d\u0041"}',
            400,
            r"not valid JSON: \ud83d is half of a surrogate pair (byte 12)",
        ),
        (rb'{"prompt": "\ud83d\ude00\ude00"}', 400, r": \ude00 is half of a surrogate pair (byte 24)"),
        (rb'{"prompt": "\\ud800 \ud83d\ude00"', 400, "not valid JSON: Input data was truncated"),
    ],
    ids=lambda value: value[:30].decode("latin-1") if isinstance(value, bytes) else None,
)
def test_what_cannot_be_served_is_refused(tiny: TinyServer, body: bytes, status: int, message: str) -> None:
    response = tiny.post(COMPLETIONS, body)
    assert response.status_code == status
    assert message in error_of(response)["message"]
    assert len(response.content) < 2000


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd"])
def test_a_compressed_body_is_refused_as_such(tiny: TinyServer, encoding: str) -> None:
    """It was said to be no JSON, or read as if it was not compressed."""
    headers = {"Content-Encoding": encoding}
    response = httpx.post(f"{tiny.url}{COMPLETIONS}", json={"prompt": "a"}, headers=headers)
    assert response.status_code == 415 and error_of(response)["code"] == "unsupported_media_type"
    assert f"Content-Encoding is '{encoding}'" in error_of(response)["message"]
    headers = {"Content-Encoding": "identity"}
    assert httpx.post(f"{tiny.url}{COMPLETIONS}", json={"prompt": "a"}, headers=headers).status_code == 200


def test_a_byte_order_mark_is_passed_over(tiny: TinyServer) -> None:
    assert tiny.post(COMPLETIONS, BOM_UTF8 + b'{"prompt": "a", "max_tokens": 1}').status_code == 200
    assert "it is empty" in error_of(tiny.post(COMPLETIONS, BOM_UTF8))["message"]


def test_of_many_wrong_biases_one_is_reported(tiny: TinyServer) -> None:
    """An error was made for each: 200,000 took 3 seconds."""
    biases = b",".join(b'"%d": "x"' % token for token in range(4000))
    response = tiny.post(COMPLETIONS, b'{"prompt": "a", "logit_bias": {' + biases + b"}}")
    assert response.status_code == 400
    assert error_of(response)["param"] == "logit_bias.0"


def test_a_long_text_with_much_punctuation_is_no_structure(tiny: TinyServer) -> None:
    """The bound is on values. JSON within a text has its quotation marks escaped, which do not count."""
    text = json.dumps({"rows": [{"name": "x", "value": 1}] * 20_000})
    response = tiny.post("/tokenize", {"prompt": text})
    assert response.status_code == 200
    assert response.json()["count"] > 20_000


def test_others_are_answered_while_large_bodies_are_decoded(tiny: TinyServer) -> None:
    """Decoding happens beside the event loop, one body at a time, the smallest first."""
    ids = b'{"prompt": [' + joined(b"12345", 700_000) + b"]}"
    slowest, stop = [0.0], threading.Event()

    def watch() -> None:
        while not stop.is_set():
            slowest.append(tiny.health())
            time.sleep(0.01)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        with ThreadPoolExecutor(4) as pool:
            responses = list(pool.map(lambda _: tiny.post(COMPLETIONS, ids), range(8)))
    finally:
        stop.set()
        watching.join()
    assert {response.status_code for response in responses} == {400}
    assert max(slowest) < 5


def test_a_body_too_large_is_refused_before_it_has_come(tiny: TinyServer) -> None:
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    begun = time.monotonic()
    with tiny.connect() as connection:
        connection.sendall(head + b"Content-Length: 1000000000000\r\n\r\n{")
        assert connection.recv(2**16).startswith(b"HTTP/1.1 413 ")
    assert time.monotonic() - begun < 10


def test_a_body_in_chunks_is_cut_off_at_the_limit(tiny: TinyServer) -> None:
    """The announced length may be missing."""
    chunk = b"x" * 2**20

    def endless() -> object:
        while True:
            yield chunk

    begun = time.monotonic()
    try:
        response = httpx.post(
            tiny.url + COMPLETIONS,
            content=endless(),  # type: ignore[arg-type]
            headers={"Content-Type": "application/json"},
            timeout=60,
        )
        assert response.status_code == 413
    except httpx.TransportError:
        pass  # this client reads no response before it has sent everything
    assert time.monotonic() - begun < 60


def test_chunks_of_frames_without_content_end(tiny: TinyServer) -> None:
    """Extensions of chunks are no part of a body, and had no bound."""
    head = (
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n"
    )
    answer = tiny.send(head + b"1;" + b"x" * 10 * MILLION)
    assert answer.startswith(b"HTTP/1.1 400 ")


def test_all_bodies_at_once_stay_within_their_memory(tiny: TinyServer) -> None:
    """Together they would be 1.5 GB. The largest of them get a 503, which says when to retry."""
    head = (
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 30000000\r\n\r\n"
    )
    part = b'{"prompt": "' + b"x" * (8 * MILLION)
    before = tiny.memory()

    over, refused = threading.Event(), list[bytes]()

    def upload(_: int) -> None:
        with tiny.connect() as connection, suppress(OSError):
            connection.sendall(head + part)
            connection.settimeout(0.2)
            while not over.is_set():
                with suppress(TimeoutError):
                    refused.append(connection.recv(2**16))
                    return

    with ThreadPoolExecutor(50) as pool:
        for number in range(50):
            pool.submit(upload, number)
        deadline = time.monotonic() + 60
        while not refused and time.monotonic() < deadline:
            time.sleep(0.1)
        assert tiny.answer() == tiny.tokens
        over.set()
    refused = [answer for answer in refused if answer.startswith(b"HTTP/1.1 503 ")]
    assert refused and all(b"retry-after: " in answer.lower() for answer in refused)
    assert tiny.memory() - before < 450e6
