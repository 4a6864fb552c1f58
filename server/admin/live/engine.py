"""What is known of one engine while it is watched: all of it, and what is new since the last event."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from turnout.core.types.live.event import LiveEngine
from turnout.core.types.live.news import (
    Breadth,
    EngineNews,
    LiveKV,
    LiveRequest,
    LiveStats,
    Progress,
    SpanNews,
    StepTrace,
)

__all__ = ["EngineKey", "WatchedEngine"]


MAX_BREADTHS = 64
"""Of a request that are kept for those who begin to watch."""


class EngineKey(NamedTuple):
    """Which engine of the server it is."""

    model: str
    arm: str
    replica: str

    @property
    def name(self) -> str:
        return "/".join(filter(None, self))


class WatchedEngine:
    """Gathers an engine's news between two events, and keeps the state that they add up to."""

    def __init__(self, key: EngineKey, policies: dict[str, str]) -> None:
        self.key = key
        self.policies = policies
        self.state = ""
        """As of the replica."""
        self.live: dict[str, LiveRequest] = {}
        """The requests that have not ended."""
        self._spans: dict[str, list[SpanNews]] = {}
        """Theirs."""
        self._breadths: dict[str, deque[Breadth]] = {}
        """Of those with several sequences, the latest."""
        self._kv: LiveKV | None = None
        self._scheduler = ""
        self._stats = LiveStats()
        self._fresh = _Fresh()

    def hear(self, news: EngineNews) -> None:
        if news.began:
            self.live, self._spans, self._breadths, self._fresh = {}, {}, {}, _Fresh(began=True)
            self._kv = None
        self._scheduler, self._stats, self._kv = news.scheduler, news.stats, news.kv or self._kv
        self._fresh.changed = True
        self._fresh.kv = news.kv or self._fresh.kv
        for request in news.requests:
            self.put(request)
        for progress in news.progress:
            self._progress(progress)
        for span in news.spans:
            self._span(span)
        for breadth in news.breadths:
            self._breadth(breadth)
        self._fresh.steps += news.steps

    def put(self, request: LiveRequest) -> None:
        """Notes a request that came or ended."""
        if (known := self.live.get(request.id)) is not None:
            request.moved_from = request.moved_from or known.moved_from
        self._fresh.changed = True
        self._fresh.requests[request.id] = request
        self._fresh.progress.pop(request.id, None)
        if request.state != "ended":
            self.live[request.id] = request
            return
        self.live.pop(request.id, None)
        self._spans.pop(request.id, None)
        self._breadths.pop(request.id, None)

    def _progress(self, progress: Progress) -> None:
        if (request := self.live.get(progress[0])) is None:
            return
        _, request.state, request.computed, request.output_tokens, request.preemptions = progress
        if request.id not in self._fresh.requests:
            self._fresh.progress[request.id] = progress

    def _span(self, span: SpanNews) -> None:
        self._fresh.spans.append(span)
        if span[0] in self.live:
            known = self._spans.setdefault(span[0], [])
            if known and known[-1][2] == span[2]:
                known.pop()
            known.append(span)

    def _breadth(self, breadth: Breadth) -> None:
        self._fresh.breadths.append(breadth)
        if breadth[0] in self.live:
            self._breadths.setdefault(breadth[0], deque(maxlen=MAX_BREADTHS)).append(breadth)

    # -------------------------------------------------------------- what is told

    def set_state(self, state: str) -> None:
        self._fresh.changed = self._fresh.changed or state != self.state
        self.state = state

    def take(self) -> LiveEngine | None:
        """Returns the news since the last call; None: there is none."""
        fresh, self._fresh = self._fresh, _Fresh()
        if not fresh.changed:
            return None
        told = self._head()
        if fresh.began:
            told.began, told.policies = True, self._policies
        told.requests, told.progress = list(fresh.requests.values()), list(fresh.progress.values())
        told.spans, told.steps, told.kv = fresh.spans, fresh.steps, fresh.kv
        told.breadths = fresh.breadths
        return told

    def whole(self) -> LiveEngine:
        """Returns all that is known."""
        told = self._head()
        told.policies, told.kv = self._policies, self._kv
        told.requests = list(self.live.values())
        told.spans = [span for spans in self._spans.values() for span in spans]
        told.breadths = [each for breadths in self._breadths.values() for each in breadths]
        return told

    @property
    def _policies(self) -> dict[str, str]:
        return {**self.policies, "scheduler": self._scheduler} if self._scheduler else self.policies

    def _head(self) -> LiveEngine:
        model, arm, replica = self.key
        return LiveEngine(
            model=model,
            name=self.key.name,
            arm=arm,
            replica=replica,
            state=self.state,
            scheduler=self._scheduler,
            stats=self._stats,
        )


class _Fresh:
    """News that were not told yet."""

    def __init__(self, *, began: bool = False) -> None:
        self.began = self.changed = began
        self.requests: dict[str, LiveRequest] = {}
        self.progress: dict[str, Progress] = {}
        """Of requests that are not among those."""
        self.spans: list[SpanNews] = []
        self.breadths: list[Breadth] = []
        self.steps: list[StepTrace] = []
        self.kv: LiveKV | None = None
