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
from answers import Answer, error_of, is_last, of_body, of_events
from endpoints import TOOLS

__all__ = ["CLIENTS", "ONE_OF_A_KIND", "REQUESTS", "Load", "Request", "answer_to"]

Body = dict[str, Any]

CLIENTS = 10
PATIENCE = 600.0
"""Seconds after which a request that has no end counts as lost; on a busy machine some take minutes."""
DOCUMENTED = ("the engine died each time that it served this request alone",)
"""What a 500 may say: docs/how-to/serve.md, "When the engine dies"."""
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
PROMPTS = ["def add(a, b):\n", "import os\n", "class Stack:\n    def", "for i in range(10):\n" * 12, "try:\n"]
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "sizes": {"type": "array", "items": {"type": "integer"}},
    },
    "required": ["name", "sizes"],
}


@dataclass(frozen=True)
class Request:
    """A request whose answer is always the same."""

    path: str
    body: Body


def _requests(each: int) -> list[Request]:
    """Completions of each kind, so many with other prompts and seeds, and conversations."""
    drawn = random.Random(5)
    kinds: list[Body] = [
        {"temperature": 0, "max_tokens": 90},
        {"temperature": 1, "max_tokens": 60},
        {"temperature": 0.8, "top_p": 0.9, "top_k": 50, "max_tokens": 40, "logprobs": 3},
        {"temperature": 1, "n": 3, "max_tokens": 30},
        {"temperature": 1, "n": 2, "best_of": 4, "max_tokens": 20},
        {"use_beam_search": True, "n": 2, "beam_width": 4, "temperature": 0, "max_tokens": 20},
        {"guided_regex": "[a-f]{3}(-[0-9]{2}){2,9}", "max_tokens": 60},
        {"guided_json": SCHEMA, "max_tokens": 80},
        {"guided_choice": ["red", "green", "a longer answer"], "max_tokens": 20},
        {"presence_penalty": 1, "logit_bias": {"5": 2}, "bad_words": ["return"], "max_tokens": 30},
        {"temperature": 0, "max_tokens": 400, "ignore_eos": True},
    ]
    found = []
    for number, kind in enumerate(kinds * each):
        body = {"prompt": drawn.choice(PROMPTS), "seed": number, "user": f"u{number % 4}", **kind}
        found.append(Request(COMPLETIONS, body))
    return [*found, *_conversations()]


def _conversations() -> list[Request]:
    """Requests of the other endpoints; those that know no seed take the most likely token."""
    said = [{"role": "user", "content": "Write a loop."}]
    chat: Body = {"messages": said, "max_tokens": 50, "seed": 9}
    message: Body = {"messages": said, "max_tokens": 60, "temperature": 0}
    response: Body = {"input": "Write a loop.", "max_output_tokens": 60, "temperature": 0}
    functions = [tool["function"] for tool in TOOLS]
    tools = [{"name": each["name"], "input_schema": each.get("parameters", {})} for each in functions]
    named = {"type": "function", "function": {"name": "forecast"}}
    return [
        Request(CHAT, chat),
        Request(CHAT, {**chat, "tools": TOOLS, "tool_choice": "required", "n": 2, "max_tokens": 150}),
        Request(CHAT, {**chat, "tools": TOOLS, "tool_choice": named, "max_tokens": 150}),
        Request(MESSAGES, message),
        Request(MESSAGES, {**message, "tools": tools, "tool_choice": {"type": "any"}, "max_tokens": 150}),
        Request(RESPONSES, response),
        Request(
            RESPONSES,
            {
                **response,
                "tools": [{"type": "function", **each} for each in functions],
                "tool_choice": "required",
                "max_output_tokens": 150,
            },
        ),
        Request(f"{MESSAGES}/count_tokens", {"messages": said, "tools": tools}),
        Request("/tokenize", {"prompt": PROMPTS[3], "return_token_strs": True}),
        Request("/tokenize", {"messages": said, "tools": TOOLS}),
        Request("/detokenize", {"tokens": list(range(5, 90))}),
    ]


STREAMED = {COMPLETIONS, CHAT, MESSAGES, RESPONSES}
REQUESTS, ONE_OF_A_KIND = _requests(2), _requests(1)


async def answer_to(client: aiohttp.ClientSession, request: Request) -> Answer:
    """The whole answer, from a server that nothing troubles."""
    async with client.post(request.path, json=request.body) as response:
        body = await response.json()
        assert response.status == 200, (request, body)
        return of_body(request.path, body)


@dataclass
class Load:
    """The clients of a server, and what has become of their requests."""

    client: aiohttp.ClientSession
    requests: list[Request]
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
            number = drawn.randrange(len(self.requests))
            try:
                async with asyncio.timeout(PATIENCE):
                    await self._ask(number, drawn)
            except TimeoutError:
                self._note_wrong("lost", number, f"no end after {PATIENCE:.0f} s")
            except aiohttp.ClientError as error:
                self._note_wrong("cut off", number, repr(error))

    async def _ask(self, number: int, drawn: random.Random) -> None:
        request, manner = self.requests[number], drawn.choice(["read"] * 6 + ["leave", "slowly", "turn away"])
        body = dict(request.body)
        if request.path in STREAMED and drawn.random() < 0.6 and "best_of" not in body:
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
                self._compare(number, of_body(request.path, await response.json()))

    async def _posted(self, path: str, body: Body) -> None:
        async with self.client.post(path, json=body) as response:
            await response.read()

    async def _read_stream(self, number: int, response: aiohttp.ClientResponse, pause: float) -> None:
        path, events = self.requests[number].path, []
        async for line in response.content:
            if pause and random.random() < 0.1:
                await asyncio.sleep(pause)
            name, _, data = line.partition(b"data: ")
            if name or not data.strip():  # an event's name, or the end of one
                continue
            done = data.strip() == b"[DONE]"
            if not done:
                events.append(json.loads(data))
                if error_of(events[-1]) is not None:
                    self._note_error(number, response, events[-1])
                    return
            if done or is_last(events[-1]):
                self._compare(number, of_events(path, events))
                return
        self._note_wrong("unfinished", number, f"the stream ended after {events[-5:]}")

    def _note_error(self, number: int, response: aiohttp.ClientResponse, body: Body) -> None:
        message = error_of(body) or str(body)
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
        self.wrong.append(f"{what}: {self.requests[number]}: {how}"[:1500])
