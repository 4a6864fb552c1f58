"""Records a simulated or measured run as a server's run is: for ``turnout view``, to compare them by eye."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from turnout.core.engine.engine import Engine
from turnout.core.engine.recording.recorder import Recorder
from turnout.core.errors import TurnoutError
from turnout.core.types.live.event import LiveEngine, LiveEvent, TraceFile
from turnout.core.types.live.news import EngineNews

__all__ = ["Recording", "write_trace"]

TICK_SECONDS = 0.25
"""Between two events of an engine, at least; on its clock."""
MODEL = "simulated"


def write_trace(file: Path, recordings: Iterable[Recording]) -> None:
    """Writes runs that are to be seen beside each other. Raises TurnoutError."""
    events = sorted((event for each in recordings for event in each.events), key=lambda event: event.at)
    if events:
        events[0] = msgspec.structs.replace(events[0], first=True)
    try:
        file.write_bytes(msgspec.json.encode(TraceFile(events=events)))
    except OSError as error:
        raise TurnoutError(f"{file} cannot be written: {error.strerror}") from None


class Recording:
    """The events of one run, whose times begin at 0."""

    def __init__(self, arm: str, scheduler: str, model: str = MODEL) -> None:
        """scheduler: as `--scheduler` has it."""
        self._arm, self._scheduler, self._model = arm, scheduler, model
        self._told: list[LiveEvent] = []
        self._engines: list[tuple[str, Engine, Recorder]] = []
        self._next: list[float] = []

    @property
    def events(self) -> list[LiveEvent]:
        """In order of time, when the simulation has ended."""
        return sorted(self._told, key=lambda event: event.at)

    def begin(self, name: str, engine: Engine, start: float = 0.0) -> None:
        """Records an engine, by its name; those that follow are numbered. start: the run's, on its clock."""
        recorder = engine.watch(-start)
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
            model=self._model,
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
            breadths=news.breadths,
            steps=news.steps,
            kv=news.kv,
        )
