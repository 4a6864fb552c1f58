"""Records a simulated run as a server's run is: for ``turnout view`` and for comparing the two by eye."""

from __future__ import annotations

from turnout.core.engine.engine import Engine
from turnout.core.engine.recording.recorder import Recorder
from turnout.core.types.live.event import LiveEngine, LiveEvent
from turnout.core.types.live.news import EngineNews

__all__ = ["Recording"]

TICK_SECONDS = 0.25
"""Between two events of an engine, at least; on its clock."""
MODEL = "simulated"


class Recording:
    """The events of one simulation, whose times begin at 0."""

    def __init__(self, arm: str, scheduler: str) -> None:
        """scheduler: as `--scheduler` has it."""
        self._arm, self._scheduler = arm, scheduler
        self._told: list[LiveEvent] = []
        self._engines: list[tuple[str, Engine, Recorder]] = []
        self._next: list[float] = []

    @property
    def events(self) -> list[LiveEvent]:
        """In order of time, when the simulation has ended."""
        return sorted(self._told, key=lambda event: event.at)

    def begin(self, name: str, engine: Engine) -> None:
        """Records an engine, by its name; those that follow are numbered."""
        recorder = engine.watch(0.0)
        assert recorder is not None
        self._engines.append((name, engine, recorder))
        self._next.append(0.0)

    def look(self, number: int, now: float) -> None:
        """Takes an engine's news, if it is time."""
        if now >= self._next[number]:
            self._next[number] = now + TICK_SECONDS
            self._take(number)

    def end(self) -> None:
        """Takes what is left."""
        for number in range(len(self._engines)):
            self._take(number)

    def _take(self, number: int) -> None:
        name, engine, recorder = self._engines[number]
        news = recorder.news(engine.stats(), self._scheduler)
        self._told.append(LiveEvent(at=news.at, engines=[self._told_of(name, news)]))

    def _told_of(self, replica: str, news: EngineNews) -> LiveEngine:
        return LiveEngine(
            model=MODEL,
            name="/".join(filter(None, (self._arm, replica))),
            arm=self._arm,
            replica=replica,
            state="serving",
            began=news.began,
            scheduler=news.scheduler,
            policies={"scheduler": self._scheduler} if news.began else {},
            stats=news.stats,
            requests=news.requests,
            progress=news.progress,
            spans=news.spans,
            steps=news.steps,
            kv=news.kv,
        )
