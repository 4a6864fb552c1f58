"""Running a client's prompts through the engine: what both endpoints and both ways of answering share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec import UNSET, UnsetType

from turnout.core.engine.client import EngineClient
from turnout.core.types.decision import TokenLogprobs
from turnout.core.types.messages import Delta
from turnout.core.types.request import RequestSpec, Timing
from turnout.server.metrics.request_metrics import RequestMeter, RequestMetrics
from turnout.server.protocol.responses import PromptTokensDetails, TimingReport, Timings, Usage
from turnout.text.best import best
from turnout.text.choice import ChoiceText, Piece
from turnout.text.tokenizer import Tokenizer

__all__ = ["Generation", "ScoredPrompt", "Update"]


class Update(NamedTuple):
    choice: int
    """Which of the response's, prompt by prompt; of those generated, until the best are chosen."""
    piece: Piece


class ScoredPrompt(NamedTuple):
    tokens: Sequence[int]
    scores: Sequence[TokenLogprobs]
    """From the second token on."""


@dataclass
class Generation:
    """One client's requests to the engine, one for each prompt, all with the same parameters."""

    client: EngineClient
    tokenizer: Tokenizer
    metrics: RequestMetrics
    requests: Sequence[RequestSpec]
    returned: int
    """Choices that the client gets for each prompt: the best of those that are generated."""
    cached_tokens: dict[str, int] = field(default_factory=dict)
    choices: dict[int, ChoiceText] = field(default_factory=dict)
    timings: dict[str, Timing] = field(default_factory=dict)
    prompt_scores: dict[str, list[TokenLogprobs]] = field(default_factory=dict)

    def updates(self) -> AsyncGenerator[Update, None]:
        """What a client may see, as it comes. Raises what `EngineClient.submit` does."""
        sources = [self._serve(number) for number in range(len(self.requests))]
        return sources[0] if len(sources) == 1 else _merged(sources)

    async def _serve(self, number: int) -> AsyncGenerator[Update, None]:
        request = self.requests[number]
        first = number * request.params.n
        with RequestMeter(self.metrics, request) as meter:
            async with aclosing(self.client.submit(request)) as deltas:
                async for delta in deltas:
                    piece = self._feed(request, first + delta.index, delta)
                    meter.take(delta.index, piece)
                    if piece.text or piece.shown or piece.finish_reason:
                        yield Update(first + delta.index, piece)

    def _feed(self, request: RequestSpec, index: int, delta: Delta) -> Piece:
        choice = self.choices.get(index)
        if choice is None:
            choice = self.choices[index] = ChoiceText(self.tokenizer, request.params, request.prompt)
        piece = choice.feed(delta)
        if choice.stopped_by_text and piece.finish_reason:
            self.client.abort(request.id, delta.index)
        if delta.cached_tokens:
            self.cached_tokens[request.id] = delta.cached_tokens
        if delta.prompt_logprobs is not None:
            self.prompt_scores[request.id] = delta.prompt_logprobs
        if delta.timing is not None:
            self.timings[request.id] = delta.timing
        return piece

    def best(self, whole: Mapping[int, Piece]) -> list[Update]:
        """What to return of all that was generated, each choice in one piece."""
        updates = []
        for number, request in enumerate(self.requests):
            first = number * request.params.n
            pieces = [whole[first + index] for index in range(request.params.n)]
            places = best([piece.cumulative_logprob for piece in pieces], self.returned)
            updates += [
                Update(number * self.returned + index, pieces[place]) for index, place in enumerate(places)
            ]
        return updates

    @property
    def choice_count(self) -> int:
        return sum(request.params.n for request in self.requests)

    def prompt_of(self, choice: int) -> ScoredPrompt | None:
        """The prompt of a choice that is returned, where its log-probabilities were asked for."""
        request = self.requests[choice // self.returned]
        scores = self.prompt_scores.get(request.id)
        return None if scores is None else ScoredPrompt(request.prompt, scores)

    @property
    def usage(self) -> Usage:
        prompt = sum(len(request.prompt) for request in self.requests)
        completion = sum(choice.token_count for choice in self.choices.values())
        cached = PromptTokensDetails(sum(self.cached_tokens.values()))
        return Usage(prompt, completion, prompt + completion, cached)

    @property
    def timing(self) -> Timings | UnsetType:
        """Known when all has been said; unset where it was not asked for."""
        if not self.requests[0].timing:
            return UNSET
        reports = [_report(self.timings.get(request.id)) for request in self.requests]
        return reports[0] if len(reports) == 1 else reports


def _report(timing: Timing | None) -> TimingReport | None:
    if timing is None:
        return None

    def after_arrival(seconds: float) -> float:
        return round(1000 * (seconds - timing.arrival), 3)

    scheduled, first_token, finished = (
        None if when is None else after_arrival(when)
        for when in (timing.scheduled, timing.first_token, timing.finished)
    )
    return TimingReport(scheduled, first_token, finished, [after_arrival(when) for when in timing.preempted])


async def _merged(sources: list[AsyncGenerator[Update, None]]) -> AsyncGenerator[Update, None]:
    """All of them at once, in the order in which things come. The first error ends them all."""
    queue: asyncio.Queue[Update | Exception | None] = asyncio.Queue()

    async def pump(source: AsyncGenerator[Update, None]) -> None:
        try:
            async for update in source:
                queue.put_nowait(update)
        except Exception as error:
            queue.put_nowait(error)
        else:
            queue.put_nowait(None)

    tasks = [asyncio.create_task(pump(source)) for source in sources]
    try:
        running = len(tasks)
        while running:
            item = await queue.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                running -= 1
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
