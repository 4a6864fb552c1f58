"""Clients of every manner, which know beforehand what each request must be answered with."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import aiohttp

__all__ = ["CLIENTS", "REQUESTS", "Load", "Request", "answer_to"]

Body = dict[str, Any]
Answer = dict[int, tuple[str, str | None]]
"""By choice: its text, and why it ended."""

CLIENTS = 10
PATIENCE = 240.0
"""Seconds after which a request that has no end counts as lost."""
DOCUMENTED = ("the engine died each time that it served this request alone",)
"""What a 500 may say: docs/how-to/serve.md, "When the engine dies"."""
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
PROMPTS = ["def add(a, b):\n", "import os\n", "class Stack:\n    def", "for i in range(10):\n" * 12, "try:\n"]


@dataclass(frozen=True)
class Request:
    """A request whose answer is always the same."""

    path: str
    body: Body


def _requests() -> list[Request]:
    drawn = random.Random(5)
    kinds: list[Body] = [
        {"temperature": 0, "max_tokens": 90},
        {"temperature": 1, "max_tokens": 60},
        {"temperature": 0.8, "top_p": 0.9, "top_k": 50, "max_tokens": 40, "logprobs": 3},
        {"temperature": 1, "n": 3, "max_tokens": 30},
        {"temperature": 1, "n": 2, "best_of": 4, "max_tokens": 20},
        {"use_beam_search": True, "n": 2, "beam_width": 4, "temperature": 0, "max_tokens": 20},
        {"guided_regex": "[a-f]{3}(-[0-9]{2}){2,9}", "max_tokens": 60},
        {"guided_choice": ["red", "green", "a longer answer"], "max_tokens": 20},
        {"presence_penalty": 1, "logit_bias": {"5": 2}, "bad_words": ["return"], "max_tokens": 30},
        {"temperature": 0, "max_tokens": 400, "ignore_eos": True},
    ]
    found = []
    for number, kind in enumerate(kinds * 2):
        body = {"prompt": drawn.choice(PROMPTS), "seed": number, "user": f"u{number % 4}", **kind}
        found.append(Request(COMPLETIONS, body))
    messages = [{"role": "user", "content": "Write a loop."}]
    found.append(Request(CHAT, {"messages": messages, "max_tokens": 50, "seed": 9}))
    return found


REQUESTS = _requests()


async def answer_to(client: aiohttp.ClientSession, request: Request) -> Answer:
    """The whole answer, from a server that nothing troubles."""
    async with client.post(request.path, json=request.body) as response:
        body = await response.json()
        assert response.status == 200, (request, body)
        return {choice["index"]: (_text(choice), choice["finish_reason"]) for choice in body["choices"]}


def _text(choice: Body) -> str:
    message = choice.get("message") or choice.get("delta")
    text: str = (message.get("content") if message is not None else choice.get("text")) or ""
    return text


@dataclass
class Load:
    """The clients of a server, and what has become of their requests."""

    client: aiohttp.ClientSession
    answers: list[Answer]
    """What is right, request by request."""
    ends: Counter[str] = field(default_factory=Counter)
    """How many requests ended in which way."""
    wrong: list[str] = field(default_factory=list)
    """Requests that ended in a way that no document knows, or with other tokens."""
    over: bool = False

    async def run(self, seed: int) -> None:
        """One client: a request after the other, until `over`."""
        drawn = random.Random(seed)
        while not self.over:
            number = drawn.randrange(len(REQUESTS))
            try:
                async with asyncio.timeout(PATIENCE):
                    await self._ask(number, drawn)
            except TimeoutError:
                self._note_wrong("lost", number, f"no end after {PATIENCE:.0f} s")
            except aiohttp.ClientError as error:
                self._note_wrong("cut off", number, repr(error))

    async def _ask(self, number: int, drawn: random.Random) -> None:
        request, manner = REQUESTS[number], drawn.choice(["read"] * 6 + ["leave", "slowly", "turn away"])
        body = dict(request.body)
        if drawn.random() < 0.6 and "best_of" not in body:
            body["stream"] = True
        if manner == "turn away":
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._posted(request.path, body), drawn.random())
            self.ends["left"] += 1
            return
        async with self.client.post(request.path, json=body) as response:
            if response.status != 200:
                self._note_error(number, response, await response.json())
            elif manner == "leave":
                await response.content.read(drawn.randrange(1, 2000))
                response.close()
                self.ends["left"] += 1
            elif "stream" in body:
                await self._read_stream(number, response, drawn.random() if manner == "slowly" else 0.0)
            else:
                choices = (await response.json())["choices"]
                self._compare(
                    number, {choice["index"]: (_text(choice), choice["finish_reason"]) for choice in choices}
                )

    async def _posted(self, path: str, body: Body) -> None:
        async with self.client.post(path, json=body) as response:
            await response.read()

    async def _read_stream(self, number: int, response: aiohttp.ClientResponse, pause: float) -> None:
        answer: Answer = {}
        async for line in response.content:
            if pause and random.random() < 0.1:
                await asyncio.sleep(pause)
            data = line.removeprefix(b"data: ").strip()
            if not data:
                continue
            if data == b"[DONE]":
                self._compare(number, answer)
                return
            event = json.loads(data)
            if "error" in event:
                self._note_error(number, response, event)
                return
            for choice in event["choices"]:
                text, reason = answer.get(choice["index"], ("", None))
                answer[choice["index"]] = (text + _text(choice), choice["finish_reason"] or reason)
        self._note_wrong("unfinished", number, f"the stream ended after {answer}")

    def _note_error(self, number: int, response: aiohttp.ClientResponse, body: Body) -> None:
        message = body["error"]["message"]
        overloaded = response.status == 503 and "Retry-After" in response.headers
        if overloaded or any(text in message for text in DOCUMENTED):
            self.ends[f"{response.status}: {message[:60]}"] += 1
        else:
            self._note_wrong("error", number, f"{response.status} {dict(response.headers)} {message}")

    def _compare(self, number: int, answer: Answer) -> None:
        if answer == self.answers[number]:
            self.ends["right"] += 1
        else:
            self._note_wrong("changed", number, f"{answer} instead of {self.answers[number]}")

    def _note_wrong(self, what: str, number: int, how: str) -> None:
        self.ends[what] += 1
        self.wrong.append(f"{what}: {REQUESTS[number]}: {how}"[:1500])
