"""Streams whose tokens come faster than `--event-interval` have the same text and usage in fewer events."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any, cast

import pytest
from asking import COMPLETIONS, events, text
from running_server import RunningServer, Start, eventually

from turnout.config import ServerConfig
from turnout.core.errors import ConfigError

PROMPT = "hello world, 你好 "
TOKENS = 60
SECONDS = 0.05
"""Some ten tokens of a `brisk` request."""


@pytest.fixture(scope="module")
def prompts() -> list[str]:
    return [f"{number}: {PROMPT}" for number in range(8)]


def streamed(server: RunningServer, path: str = COMPLETIONS, **body: Any) -> list[dict[str, Any]]:
    given = {"prompt": PROMPT} if path == COMPLETIONS else {"messages": [{"role": "user", "content": PROMPT}]}
    return events(server, path, **{"max_tokens": TOKENS, **given, **body})


def test_events_are_fewer_and_say_the_same(start: Start) -> None:
    slow, fast = start(event_interval=0), start(event_interval=SECONDS)
    for options in ({}, {"stop": ["world, he"]}, {"logprobs": 1}):
        one_by_one = streamed(slow, user="brisk", **options)
        together = streamed(fast, user="brisk", **options)
        assert text(together) == text(one_by_one)
        last, same = together[-1]["choices"][0], one_by_one[-1]["choices"][0]
        assert last["finish_reason"] == same["finish_reason"]
        assert len(together) < len(one_by_one) / 2 or "stop" in options
        if "logprobs" in options:
            found, expected = (
                list(chain.from_iterable(event["choices"][0]["logprobs"]["token_logprobs"] for event in each))
                for each in (together, one_by_one)
            )
            assert found == expected


def test_first_and_last_tokens_do_not_wait(start: Start) -> None:
    server = start(event_interval=1.0)
    body = {"timing": True, "stream_options": {"include_usage": True}}
    first, *between, last = streamed(server, user="brisk", max_tokens=20, **body)
    assert text([first])
    assert len(between) <= 2  # whatever else was sent in that second, and all else with the last token
    assert last["usage"]["completion_tokens"] == 20
    assert last["timing"]["finished_ms"] < 900  # 20 steps of 5 ms each


def test_usage_so_far_counts_all_tokens(start: Start) -> None:
    server = start(event_interval=SECONDS)
    usage = {"include_usage": True, "continuous_usage_stats": True}
    counts = [
        event["usage"]["completion_tokens"] for event in streamed(server, user="brisk", stream_options=usage)
    ]
    assert counts == sorted(counts)
    assert counts[-1] == TOKENS
    assert len(counts) < TOKENS / 2


@pytest.mark.parametrize("n", [1, 3])
def test_many_streams_at_once(start: Start, prompts: list[str], n: int) -> None:
    server = start(event_interval=0.01)
    expected = [
        server.post(COMPLETIONS, prompt=prompt, max_tokens=TOKENS, n=n).json()["choices"]
        for prompt in prompts
    ]

    def found(prompt: str) -> list[str]:
        texts = [""] * n
        for event in events(server, COMPLETIONS, prompt=prompt, max_tokens=TOKENS, n=n):
            texts[event["choices"][0]["index"]] += event["choices"][0]["text"]
        return texts

    with ThreadPoolExecutor(len(prompts)) as pool:
        for texts, choices in zip(pool.map(found, prompts), expected, strict=True):
            assert texts == [choice["text"] for choice in choices]


def test_a_stream_survives_its_engine(start: Start) -> None:
    """What an engine held when it died is computed again, once."""
    server = start(event_interval=SECONDS)
    expected = text(streamed(server, max_tokens=200))
    with ThreadPoolExecutor(1) as pool:
        stream = pool.submit(streamed, server, user="brisk", max_tokens=200)
        eventually(lambda: server.work() == 1)
        time.sleep(0.3)
        os.kill(cast(int, server.client.pid), signal.SIGKILL)
        assert text(stream.result(30)) == expected
    assert server.client.restarts == 1


@pytest.mark.parametrize("seconds", [-0.1, 1.5, float("nan"), float("inf")])
def test_intervals_that_nobody_waits_for_are_refused(seconds: float) -> None:
    with pytest.raises(ConfigError, match="event_interval"):
        ServerConfig(event_interval=seconds)
