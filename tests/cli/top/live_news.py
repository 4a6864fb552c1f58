"""Events of a made-up server."""

from __future__ import annotations

from typing import Any

from turnout.core.types.live.event import LiveEngine, LiveEvent
from turnout.core.types.live.news import LiveRequest, LiveStats, StepTrace

EVIL = "evil\x1b[31m\x1b]0;pwned\x07\u202egnp.exe\nnext"


def engine(replica: str = "0", **news: Any) -> LiveEngine:
    given = {"model": "m", "name": f"m/{replica}", "replica": replica, "state": "serving", "scheduler": "sjf"}
    return LiveEngine(**{**given, **news})


def stats(steps: int = 1, **values: int) -> LiveStats:
    return LiveStats(steps=steps, kv_capacity=1000, **{"kv_free": 400, **values})


def request(id: str, state: Any = "decode", arrival: float = 95.0, **values: Any) -> LiveRequest:
    given = {"prompt_tokens": 40, "max_tokens": 16, "client": "ann"}
    return LiveRequest(id=id, state=state, arrival=arrival, **{**given, **values})


def event(at: float, *engines: LiveEngine, first: bool = False) -> LiveEvent:
    return LiveEvent(at=at, engines=list(engines), first=first)


def said(number: int = 1, **words: Any) -> StepTrace:
    return StepTrace(number=number, started=99.0, ended=99.1, tokens=4, **words)
