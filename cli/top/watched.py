"""What is known of a server that is watched, from the events of `GET /admin/live`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from statistics import quantiles

from turnout.core.types.live.event import LiveEngine, LiveEvent
from turnout.core.types.live.news import LiveKV, LiveRequest, LiveStats, Progress, SpanNews, StepTrace

__all__ = ["Engine", "Watched", "WatchedRequest"]

RATE_SECONDS = 5.0
"""Rates are over the last so many seconds."""
RECENT_SECONDS = 60.0
"""Latencies are of the requests that ended, or got their first token, in the last so many seconds."""
GRACE_SECONDS = 3.0
"""How long after a new beginning a request may stay unmentioned before it counts as ended."""

SERVES = ("serving", "draining", "drained")
"""States in which an engine has counters. In others, those told are of an engine that is no more."""

EngineKey = tuple[str, str, str]


@dataclass(eq=False)
class WatchedRequest:
    """A request that has not ended."""

    news: LiveRequest
    engine: Engine
    first_token: float | None = None
    why: str = ""
    """What the policy said of it last."""
    place: int | None = None
    """In the queue, from 1 on, as the policy ordered it last."""


@dataclass(eq=False)
class Engine:
    key: EngineKey
    name: str
    state: str = ""
    scheduler: str = ""
    stats: LiveStats = field(default_factory=LiveStats)
    kv: LiveKV | None = None
    first_tokens: deque[tuple[float, float]] = field(default_factory=deque)
    """When first tokens came, and how many seconds after the arrival."""
    token_times: deque[tuple[float, float]] = field(default_factory=deque)
    """When requests ended, and how many seconds each of their tokens took."""
    _history: deque[tuple[float, LiveStats]] = field(default_factory=deque)

    def note(self, at: float, stats: LiveStats) -> None:
        """Take the counters. Smaller ones are those of another engine, which has taken its place."""
        if stats.steps < self.stats.steps:
            self._history.clear()
        self.stats = stats
        self._history.append((at, stats))
        self._forget(at)

    def forget_counters(self) -> None:
        self.stats, self.kv = LiveStats(), None
        self._history.clear()

    def rate(self, name: str, now: float) -> float | None:
        """How fast a counter grows, a second; None until that is known."""
        self._forget(now)
        if len(self._history) < 2:
            return 0.0 if self._history and now - self._history[0][0] > RATE_SECONDS else None
        (began, first), (ended, last) = self._history[0], self._history[-1]
        grown: float = getattr(last, name) - getattr(first, name)
        return grown / max(ended - began, now - began, 1e-9)

    @property
    def kv_use(self) -> float | None:
        """Share of the KV pool that is held, from 0 to 1."""
        capacity = self.stats.kv_capacity
        return 1 - self.stats.kv_free / capacity if capacity else None

    def _forget(self, now: float) -> None:
        while len(self._history) > 1 and self._history[1][0] < now - RATE_SECONDS:
            self._history.popleft()


class Watched:
    """The engines, and their requests."""

    def __init__(self) -> None:
        self.at = 0.0
        """The server's time, as of the last event."""
        self.engines: dict[EngineKey, Engine] = {}
        self.requests: dict[str, WatchedRequest] = {}
        self._missing: dict[str, float] = {}
        """Requests that are to be told of again, and until when."""
        self._missing_engines: dict[EngineKey, float] = {}

    def hear(self, event: LiveEvent) -> None:
        self.at = max(self.at, event.at)
        if event.first:
            self._begin()
        for news in event.engines:
            self._engine(news)
        self.settle(self.at)

    def settle(self, now: float) -> None:
        """Drop what a new beginning did not tell of in time, and what is long ago."""
        for id, until in list(self._missing.items()):
            if now >= until:
                self._drop(id)
        for key, until in list(self._missing_engines.items()):
            if now >= until:
                del self._missing_engines[key], self.engines[key]
        for engine in self.engines.values():
            for times in (engine.first_tokens, engine.token_times):
                while times and times[0][0] < now - RECENT_SECONDS:
                    times.popleft()

    def of(self, engine: Engine) -> Iterator[WatchedRequest]:
        return (request for request in self.requests.values() if request.engine is engine)

    # -------------------------------------------------------------- news

    def _begin(self) -> None:
        """The server may be another than before, which has not heard of any step as yet."""
        self._expect(self.requests)
        self._missing_engines = dict.fromkeys(self.engines, self.at + GRACE_SECONDS)
        for engine in self.engines.values():
            engine.forget_counters()

    def _engine(self, news: LiveEngine) -> None:
        key = (news.model, news.arm, news.replica)
        engine = self.engines.setdefault(key, Engine(key, news.name))
        self._missing_engines.pop(key, None)
        engine.state, engine.scheduler = news.state, news.scheduler or engine.scheduler
        if news.began or news.state == "gone":
            self._expect([id for id, request in self.requests.items() if request.engine is engine])
        if news.state == "gone":
            del self.engines[key]
            return
        self._counters(engine, news)
        for request in news.requests:
            self._request(engine, request)
        for progress in news.progress:
            self._progress(engine, progress)
        for span in news.spans:
            self._span(engine, span)
        for step in news.steps:
            self._step(engine, step)

    def _counters(self, engine: Engine, news: LiveEngine) -> None:
        serves = news.state in SERVES
        if news.began or not serves:
            engine.forget_counters()
        if serves:
            engine.kv = news.kv or engine.kv
        if serves and news.stats.steps:
            engine.note(self.at, news.stats)

    def _progress(self, engine: Engine, progress: Progress) -> None:
        known = self.requests.get(progress[0])
        if known is not None and known.engine is engine:
            self._missing.pop(progress[0], None)
            told = known.news
            _, told.state, told.computed, told.output_tokens, told.preemptions = progress

    def _step(self, engine: Engine, step: StepTrace) -> None:
        """Take what the policy decided and said."""
        if step.order is not None:
            for request in self.of(engine):
                request.place = None
            for place, id in enumerate(step.order, 1):
                if id in self.requests:
                    self.requests[id].place = place
        for id, words in step.why.items():
            if id in self.requests:
                self.requests[id].why = words

    def _request(self, engine: Engine, news: LiveRequest) -> None:
        known = self.requests.get(news.id)
        if news.state == "ended":
            if known is not None and known.engine is engine and news.finish_reason != "moved":
                self._note_end(known, news)
                self._drop(news.id)
            return
        self._missing.pop(news.id, None)
        if known is None:
            self.requests[news.id] = WatchedRequest(news, engine)
        else:
            known.news, known.engine = news, engine

    def _span(self, engine: Engine, span: SpanNews) -> None:
        id, phase, start, _ = span
        known = self.requests.get(id)
        if known is None or phase != "decode" or known.first_token is not None:
            return
        known.first_token = start
        engine.first_tokens.append((start, max(0.0, start - known.news.arrival)))

    def _note_end(self, known: WatchedRequest, news: LiveRequest) -> None:
        tokens = news.output_tokens / max(1, news.n)
        if known.first_token is not None and tokens > 1 and news.finish_reason in ("stop", "length"):
            took = max(0.0, self.at - known.first_token) / (tokens - 1)
            known.engine.token_times.append((self.at, took))

    def _expect(self, ids: Iterable[str]) -> None:
        """After a new beginning, requests that live are told of again; the others ended meanwhile."""
        self._missing.update(dict.fromkeys(ids, self.at + GRACE_SECONDS))

    def _drop(self, id: str) -> None:
        self._missing.pop(id, None)
        self.requests.pop(id, None)


def percentiles(times: Iterable[tuple[float, float]]) -> tuple[float, float] | None:
    """The median and the 95th percentile, in seconds; None: there are no values."""
    values = [value for _, value in times]
    if not values:
        return None
    if len(values) == 1:
        return values[0], values[0]
    cuts = quantiles(values, n=20, method="inclusive")
    return cuts[9], cuts[18]
