"""A model that was unloaded and loaded again gives the same tokens, to streams that wait for it, too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from tiny_server import TinyServer

pytestmark = pytest.mark.slow

FLAGS: Mapping[str, tuple[str, ...]] = {
    "plain": (),
    "a draft model": ("--spec-draft", "turnout-tiny-draft"),
    "n-gram drafts": ("--spec-ngram",),
    "int8 weights": ("--quantization", "int8"),
    "contiguous KV": ("--kv", "contiguous"),
    "overlapping steps": ("--async-scheduling",),
}
PROMPTS = ["def add(a, b):", "class Stack:\n    def __init__(self):", "import os\n"]
ASKED: list[dict[str, Any]] = [
    *({"prompt": prompt, "temperature": 0} for prompt in PROMPTS),
    {"prompt": PROMPTS[0], "temperature": 0.9, "seed": 7},
]


class TwoModels(TinyServer):
    """Models `a` and `b`, with room for one of them."""

    def __init__(self, *flags: str) -> None:
        room = ("--lazy", "--max-loaded-models", "1", "--kv-memory", "64MiB", "--max-model-len", "512")
        super().__init__("b=turnout-tiny", *room, *flags, model="a=turnout-tiny", generates=False)

    def streamed(self, model: str, **asked: Any) -> tuple[str, int]:
        """A stream's text, and how often its model had to be loaded for it."""
        before = self.loads(model)
        body = {"model": model, "max_tokens": 48, "ignore_eos": True, "stream": True, **asked}
        response = self.post("/v1/completions", body, timeout=120)
        assert response.status_code == 200, response.text
        lines = response.text.splitlines()
        events = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
        assert events[-1] == "[DONE]", response.text
        told = [json.loads(event) for event in events[:-1]]
        assert not [event for event in told if "error" in event], response.text
        texts = [choice["text"] for event in told for choice in event["choices"]]
        return "".join(texts), self.loads(model) - before

    def loads(self, model: str) -> int:
        models = httpx.get(f"{self.url}/admin/models").json()["models"]
        return next(int(each["loads"]) for each in models if each["name"] == model)


@pytest.mark.parametrize("flags", FLAGS.values(), ids=FLAGS)
def test_tokens_outlast_unloading(flags: tuple[str, ...]) -> None:
    server = TwoModels(*flags)
    try:
        before = [server.streamed("a", **asked) for asked in ASKED]
        assert [loads for _, loads in before] == [1, 0, 0, 0]
        for asked, (text, _) in [(ASKED[0], before[0]), (ASKED[-1], before[-1])]:
            # Another model of the same weights takes the room, and gives it back.
            assert server.streamed("b", **asked) == (text, 1)
            assert server.streamed("a", **asked) == (text, 1)
        server.health()
        assert "Traceback" not in server.text(), server.text()
    finally:
        server.end()
