"""Of a request with many prompts the engine has a portion at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast

import pytest

from turnout.core.engine.client import EngineClient
from turnout.core.errors import Overloaded
from turnout.core.types.messages import Delta
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.server.generation import portions
from turnout.server.generation.merge import merged
from turnout.server.generation.portions import Portion, Portions


class Engine:
    """Notes how many requests it has at once, and refuses what `full` says."""

    def __init__(self) -> None:
        self.running = self.most = 0
        self.now = 0.0
        """Seconds: each token takes one."""
        self.served: list[RequestSpec] = []
        self.full = 0
        """So many requests are refused before the next is taken."""
        self.takes_first = 1
        """So many are taken before any is refused."""

    async def submit(self, request: RequestSpec) -> AsyncGenerator[Delta, None]:
        if len(self.served) >= self.takes_first and self.full:
            self.full -= 1
            raise Overloaded("too many")
        self.running += 1
        self.most = max(self.most, self.running)
        self.served.append(request)
        try:
            for token in range(3):
                await asyncio.sleep(0)
                self.now += 1
                yield Delta(request_id=request.id, tokens=[token])
        finally:
            self.running -= 1


def spec(number: int, **fields: Any) -> RequestSpec:
    return RequestSpec(id=str(number), prompt=[1], params=SamplingParams(), seed=0, **fields)


def serve_all(engine: Engine, most: int, requests: list[RequestSpec]) -> list[str]:
    """The ids of requests, as their tokens come."""

    async def main() -> list[str]:
        portion = Portion(Portions(cast(EngineClient, engine), lambda: most), 1)
        return [delta.request_id async for delta in merged(map(portion.submit, requests), portion)]

    return asyncio.run(main())


def test_the_engine_has_no_more_at_once_and_serves_all_in_order() -> None:
    engine = Engine()
    answers = serve_all(engine, 3, [spec(i) for i in range(20)])
    assert sorted(answers) == sorted([str(i) for i in range(20)] * 3)
    assert engine.most == 3
    assert [request.id for request in engine.served] == [str(i) for i in range(20)]


def test_a_deadline_stays_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine()
    monkeypatch.setattr(portions, "monotonic", lambda: engine.now)
    serve_all(engine, 1, [spec(i, deadline=60.0, ttft_deadline=9.0) for i in range(2)])
    assert [request.deadline for request in engine.served] == [60, 57]
    assert [request.ttft_deadline for request in engine.served] == [9, 6]


def test_what_was_begun_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portions, "RETRY_SECONDS", 0.001)
    engine = Engine()
    engine.full = 5
    assert serve_all(engine, 1, [spec(i) for i in range(3)]) == ["0"] * 3 + ["1"] * 3 + ["2"] * 3


def test_what_cannot_begin_is_refused() -> None:
    engine = Engine()
    engine.full, engine.takes_first = 1, 0
    with pytest.raises(Overloaded):
        serve_all(engine, 2, [spec(0)])
