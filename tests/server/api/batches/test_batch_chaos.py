"""Whatever dies while a batch is served, each of its lines is answered once."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

import openai
import pytest
from tiny_server import TinyServer, serving

LINES = 400
URL = "/v1/completions"


def batch_of(client: openai.OpenAI) -> str:
    body = {"prompt": "def add(a, b):", "max_tokens": 40, "temperature": 0, "ignore_eos": True}
    lines = [
        {"custom_id": str(number), "method": "POST", "url": URL, "body": body | {"seed": number}}
        for number in range(LINES)
    ]
    content = "\n".join(map(json.dumps, lines)).encode()
    file = client.files.create(file=("in.jsonl", content), purpose="batch")
    return client.batches.create(input_file_id=file.id, endpoint=URL, completion_window="24h").id


def client_of(server: TinyServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def reach(client: openai.OpenAI, batch: str, count: int) -> int:
    """Waits until so many lines have ended, and says how many have."""
    deadline = time.monotonic() + 240
    while True:
        found = client.batches.retrieve(batch)
        assert found.request_counts is not None and time.monotonic() < deadline, found
        if found.status == "completed" or found.request_counts.completed >= count:
            return found.request_counts.completed
        time.sleep(0.02)


def check(client: openai.OpenAI, server: TinyServer, batch: str) -> None:
    reach(client, batch, LINES + 1)
    found = client.batches.retrieve(batch)
    assert found.error_file_id is None and found.output_file_id is not None
    answers = [json.loads(line) for line in client.files.content(found.output_file_id).text.splitlines()]
    assert [answer["custom_id"] for answer in answers] == list(map(str, range(LINES)))
    texts = {answer["response"]["body"]["choices"][0]["text"] for answer in answers}
    assert len(texts) == 1, "the same prompt, greedily"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_engine_is_killed(tmp_path: Path) -> None:
    with serving("--batch-dir", str(tmp_path), "--engine-restarts", "9") as server:
        client = client_of(server)
        batch, done = batch_of(client), 0
        for share in (0.2, 0.5):
            done = reach(client, batch, int(share * LINES))
            for child in server.process.children():
                if "server.engine" in " ".join(child.cmdline()):
                    os.kill(child.pid, signal.SIGKILL)
        assert done < LINES
        check(client, server, batch)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_server_is_killed_and_started_again(tmp_path: Path) -> None:
    batch, share, kills = "", 0.0, 0
    rng = random.Random(7)
    while share < 0.8:
        with serving("--batch-dir", str(tmp_path)) as server:
            client = client_of(server)
            batch = batch or batch_of(client)
            share += rng.uniform(0.15, 0.3)
            reach(client, batch, int(share * LINES))
            sign = signal.SIGTERM if kills % 2 else signal.SIGKILL
            server.popen.send_signal(sign)
            server.popen.wait(60)
            kills += 1
    assert kills >= 3
    with serving("--batch-dir", str(tmp_path)) as server:
        check(client_of(server), server, batch)
