"""Bodies of every endpoint: each is served or refused in OpenAI's form, and none harms another request."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from endpoints import ENDPOINTS, assert_answered, examples
from fuzzing import Fuzz
from hypothesis import strategies as st
from tiny_server import TinyServer
from values import encoded

CANARY = 20
"""Requests after which another client's request is tried."""
FEW = {"completions": 20, "chat": 16}


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_every_body_is_served_or_refused(fuzz: Fuzz, fuzzed: TinyServer, endpoint: str) -> None:
    path, sent = ENDPOINTS[endpoint][0], 0
    with httpx.Client(base_url=fuzzed.url, timeout=60) as client:

        def check(body: Any) -> None:
            nonlocal sent
            assert_answered(path, posted(client, path, encoded(body)))
            sent += 1
            if not sent % CANARY:
                fuzzed.check()

        fuzz(examples(endpoint), check, FEW.get(endpoint, 8))
    fuzzed.check()


def test_every_text_is_served_or_refused(fuzz: Fuzz, fuzzed: TinyServer) -> None:
    """A body that was valid JSON, until bytes of it were changed."""
    valid = encoded(
        {"prompt": ["def", "é🙂"], "max_tokens": 2, "logit_bias": {"5": 1.5}, "stop": ["\n"], "stream": True}
    )
    places = st.integers(0, len(valid) - 1)
    changes = st.lists(st.tuples(places, st.binary(max_size=4), st.integers(0, 3)), max_size=5)
    with httpx.Client(base_url=fuzzed.url, timeout=60) as client:

        def check(changed: list[tuple[int, bytes, int]]) -> None:
            body = valid
            for start, inserted, dropped in changed:
                body = body[:start] + inserted + body[start + dropped :]
            assert_answered("/v1/completions", posted(client, "/v1/completions", body))

        fuzz(changes, check, 30)
    fuzzed.check()


def posted(client: httpx.Client, path: str, body: bytes) -> httpx.Response:
    return client.post(path, content=body, headers={"Content-Type": "application/json"})
