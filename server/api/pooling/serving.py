"""Serves the texts of a request, and answers with what they were pooled to."""

from __future__ import annotations

import binascii
import time
import uuid
from array import array
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnout.core.errors import EngineError, RequestError
from turnout.core.types.messages import Delta
from turnout.core.types.pooling import Pooled
from turnout.core.types.request import RequestSpec, Traced
from turnout.server.api.context import Context
from turnout.server.api.pooling.texts import Texts, named, numbered, prepared_texts
from turnout.server.api.respond import LARGE
from turnout.server.fleet.arms import ServedArm
from turnout.server.fleet.models.waiting import entry_of
from turnout.server.generation.generation import note_traced, start_of_prompt
from turnout.server.generation.merge import merged
from turnout.server.generation.portions import Portion, waited
from turnout.server.http.access.auth import client_of, count_tokens
from turnout.server.http.disconnect import while_connected
from turnout.server.http.json_response import JsonResponse
from turnout.server.http.records.record import note_answer
from turnout.server.http.request_memory import held_memory
from turnout.server.metrics.request_metrics import RequestMeter
from turnout.server.protocol.pooling.answers import PoolingUsage
from turnout.server.protocol.pooling.requests import PooledRequest
from turnout.text.tokenizer import Tokenizer

__all__ = ["Asked", "PooledTexts", "answered", "in_base64", "numbers"]

JSON_BYTES = 5
"""Bytes of JSON for a byte of float32."""


@dataclass(frozen=True)
class Asked:
    """A request for texts to be pooled."""

    request: Request
    context: Context
    """Of the model that it names."""
    body: PooledRequest
    arm: ServedArm
    id: str

    @classmethod
    def new_id(cls, kind: str) -> str:
        return f"{kind}-{uuid.uuid4().hex}"

    @cached_property
    def _answer(self) -> _Answer:
        """Of all its texts, also where they are pooled one part after the other."""
        return _Answer(self.arm.tokenizer)

    async def pooled(self, of: Texts, field: str = "input", most: int | None = None) -> PooledTexts:
        """Returns what the texts become. Raises RequestError, which names them `field`, and Overloaded.

        most: tokens that are kept of each text; None: as the body says.
        """
        memory, client = held_memory(self.request), client_of(self.request, self.body.user)
        answer, id = self._answer, f"{self.id}-rest" if self._answer.requests else self.id
        with named(field):
            with memory.growing():
                preparing = prepared_texts(self.context, self.arm, self.body, of, id, client, memory, most)
                specs = await while_connected(self.request.receive, preparing)
            entry = entry_of(self.request)
            specs = [waited(spec, entry.waited) for spec in specs] if entry.waited else specs
            entry.begun()
            tokens = sum(len(spec.prompt) for spec in specs)
            answer.requests += specs
            answer.finish_reasons = ["abort"]
            note_answer(self.request.scope, answer)
            count_tokens(self.request, lambda: answer.prompt_tokens)
            try:
                with memory.growing():
                    found = await while_connected(self.request.receive, self._served(specs, of, answer))
                    memory.add(JSON_BYTES * sum(len(each.data) for each in found))
            except RequestError:
                del answer.requests[-len(specs) :]
                raise
        answer.finish_reasons = ["stop"]
        endpoint = self.request.url.path
        self.context.metrics[self.arm.name].pooled(endpoint, len(specs), tokens)
        return PooledTexts(found, tokens)

    async def _served(self, specs: Sequence[RequestSpec], of: Texts, answer: _Answer) -> list[Pooled]:
        found: dict[int, Pooled] = {}
        metrics = self.context.metrics[self.arm.name]
        began = metrics.clock()

        async def serve(
            number: int, submit: Callable[[RequestSpec], AsyncGenerator[Delta, None]]
        ) -> AsyncGenerator[None, None]:
            with numbered(of, number), RequestMeter(metrics, specs[number], began) as meter:
                async with aclosing(submit(specs[number])) as deltas:
                    async for delta in deltas:
                        if delta.begun is not None:
                            meter.begin(delta.begun, delta.cached_tokens)
                        if delta.traced is not None:
                            note_traced(answer.traces, specs[number].id, delta.traced)
                        if delta.pooled is not None:
                            found[number] = delta.pooled
                            meter.take_pooled()
                            yield None

        if len(specs) == 1:
            async with aclosing(serve(0, self.arm.client.submit)) as ended:
                async for _ in ended:
                    pass
        else:
            portion = Portion(self.context.portions[self.arm.name], 1)
            sources = (serve(number, portion.submit) for number in range(len(specs)))
            async with aclosing(merged(sources, portion)) as ended:
                async for _ in ended:
                    pass
        if len(found) < len(specs):
            raise EngineError("the engine ended a request without its result")
        return [found[number] for number in range(len(specs))]


@dataclass
class _Answer:
    """For the request's record."""

    tokenizer: Tokenizer
    requests: list[RequestSpec] = field(default_factory=list)
    finish_reasons: Sequence[str] = ("abort",)
    error: str = ""
    first_token_at: float | None = None
    completion_tokens: int = 0
    cached_tokens: int = 0
    traces: dict[str, list[Traced]] = field(default_factory=dict)

    @property
    def prompt_tokens(self) -> int:
        return sum(len(spec.prompt) for spec in self.requests)

    def prompt_texts(self, longest: int | None) -> list[str]:
        return [start_of_prompt(self.tokenizer, spec.prompt, longest) for spec in self.requests]


@dataclass(frozen=True)
class PooledTexts:
    """What the texts of a request became, in their order."""

    found: Sequence[Pooled]
    tokens: int

    @property
    def usage(self) -> PoolingUsage:
        return PoolingUsage(self.tokens, self.tokens)

    @property
    def numbers(self) -> int:
        return sum(len(each.data) // 4 for each in self.found)


def numbers(pooled: Pooled) -> list[Any]:
    """The numbers of a vector, or of each token's."""
    flat = array("f")
    flat.frombytes(pooled.data)
    values = flat.tolist()
    if len(pooled.shape) == 1:
        return values
    size = pooled.shape[1]
    return [values[start : start + size] for start in range(0, len(values), size)]


def in_base64(pooled: Pooled) -> str:
    return binascii.b2a_base64(pooled.data, newline=False).decode()


async def answered(asked: Asked, size: int, answer: Callable[[int], msgspec.Struct]) -> Response:
    """Responds with what `answer` makes, given the time; in a thread where it has many numbers."""
    created = int(time.time())
    asked.context.metrics[asked.arm.name].pooled_request(asked.request.url.path)

    def encode() -> bytes:
        return msgspec.json.encode(answer(created))

    if size < LARGE:
        return Response(encode(), media_type=JsonResponse.media_type)
    encoded = await while_connected(asked.request.receive, asked.context.rendering.run(encode))
    return Response(encoded, media_type=JsonResponse.media_type)
