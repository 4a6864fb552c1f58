"""A process that sends a server made-up bodies for all endpoints.

``python fuzzer.py URL SEED PAUSE PATIENCE`` goes on until its standard input is closed. Then it writes one
line of JSON: how many answers of each status each endpoint gave, and what no answer should have been.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections import Counter
from itertools import count
from typing import Any

import httpx
from endpoints import ENDPOINTS, assert_answered, examples
from hypothesis import HealthCheck, Phase, given, seed, settings
from values import encoded

DOCUMENTED = "the engine died each time that it served this request alone"
"""What a 500 may say: docs/how-to/serve.md, "When the engine dies"."""
AWAY = (503, 504)
"""What a command is answered with while the engine is away."""
LEFT_OUT = {"prefixes"}
"""Pins would take the memory that the requests with known answers need."""
ROUND = 12
"""Examples of an endpoint, before the next one's turn."""
UNREAD = 0.15
"""The share of requests whose answer is not waited for."""


class Fuzzer:
    """What was sent, and how it was answered."""

    def __init__(self, url: str, first: int, pause: float, patience: float) -> None:
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._drawn = random.Random(first)
        self._first = first
        self._pause = pause
        self._over = threading.Event()
        self._client = httpx.Client(
            base_url=url, timeout=patience, limits=httpx.Limits(max_keepalive_connections=0)
        )

    def run(self) -> None:
        threading.Thread(target=self._wait_for_end, daemon=True).start()
        names = sorted(ENDPOINTS.keys() - LEFT_OUT)
        for number in count(self._first):
            if self._over.is_set():
                return
            self._round(self._drawn.choice(names), number)

    def _wait_for_end(self) -> None:
        sys.stdin.read()
        self._over.set()

    def _round(self, name: str, number: int) -> None:
        @settings(
            max_examples=ROUND,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
        )
        @seed(number)
        @given(examples(name))
        def send(body: Any) -> None:
            if not self._over.is_set():
                self._send(name, encoded(body))
                time.sleep(self._drawn.uniform(0, self._pause))

        send()

    def _send(self, name: str, content: bytes) -> None:
        path = ENDPOINTS[name][0]
        try:
            if self._drawn.random() < UNREAD:
                self._leave(path, content)
                self.counts[f"{name} left"] += 1
                return
            answer = self._client.post(path, content=content, headers={"Content-Type": "application/json"})
        except httpx.HTTPError as error:
            self._note(name, content, f"{error!r}")
            return
        self.counts[f"{name} {answer.status_code}"] += 1
        if DOCUMENTED in answer.text or (path.startswith("/admin") and answer.status_code in AWAY):
            return
        try:
            assert_answered(path, answer)
        except (AssertionError, LookupError, ValueError) as error:
            self._note(name, content, f"{answer.status_code} {error!r}")

    def _leave(self, path: str, content: bytes) -> None:
        """Close the connection after the first bytes of an answer, or before there are any."""
        headers = {"Content-Type": "application/json"}
        with self._client.stream("POST", path, content=content, headers=headers) as answer:
            if self._drawn.random() < 0.5:
                next(answer.iter_raw(), b"")

    def _note(self, name: str, content: bytes, how: str) -> None:
        self.counts[f"{name} wrong"] += 1
        self.wrong.append(f"{name}: {content[:1500].decode()}: {how[:1500]}")


def main() -> None:
    url, first, pause, patience = sys.argv[1:]
    fuzzer = Fuzzer(url, int(first), float(pause), float(patience))
    fuzzer.run()
    print(json.dumps({"counts": fuzzer.counts, "wrong": fuzzer.wrong[:20]}), flush=True)


if __name__ == "__main__":
    main()
