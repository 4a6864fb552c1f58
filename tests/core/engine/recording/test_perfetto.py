"""Traces for Perfetto, held against the rules of the Trace Event Format."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from typing import Any

from jsonschema import Draft202012Validator
from toy import toy_engine, toy_kv, toy_request

from turnout.core.engine.recording.perfetto import perfetto_trace
from turnout.core.scheduling.preemption import Swap
from turnout.core.types.live.event import LiveEngine, LiveEvent
from turnout.core.types.live.news import LiveRequest, StepTrace
from turnout.plugins.schedulers.fcfs import Fcfs

NUMBER, TEXT, COUNT = {"type": "number", "minimum": 0}, {"type": "string"}, {"type": "integer", "minimum": 0}
COMMON = {"name": TEXT, "cat": TEXT, "pid": COUNT, "tid": COUNT, "args": {"type": "object"}}


def _event(phase: str, *required: str, **fields: object) -> dict[str, Any]:
    properties = {"ph": {"const": phase}, **COMMON, **fields}
    needed = ["ph", "name", "pid", "tid", *required]
    return {
        "type": "object", "properties": properties, "required": needed, "additionalProperties": False,
    }  # fmt: skip


LOCAL = {
    "type": "object",
    "properties": {"local": TEXT},
    "required": ["local"],
    "additionalProperties": False,
}
COUNTS = {"type": "object", "additionalProperties": {"type": "number"}, "minProperties": 1}
SCHEMA = {
    "type": "object",
    "required": ["traceEvents"],
    "properties": {
        "displayTimeUnit": {"enum": ["ms", "ns"]},
        "otherData": {"type": "object"},
        "traceEvents": {
            "type": "array",
            "items": {
                "oneOf": [
                    _event("M", "args", name={"enum": ["process_name", "thread_name"]}),
                    _event("X", "ts", "dur", ts=NUMBER, dur=NUMBER),
                    _event("i", "ts", "s", ts=NUMBER, s={"enum": ["g", "p", "t"]}),
                    _event("C", "ts", "args", ts=NUMBER, args=COUNTS),
                    _event("b", "ts", "id2", "cat", ts=NUMBER, id2=LOCAL),
                    _event("e", "ts", "id2", "cat", ts=NUMBER, id2=LOCAL),
                ]
            },
        },
    },
}
"""From "Trace Event Format": complete, instant, counter, nestable async and metadata events."""


def check_trace(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a trace, which is valid by the schema; they nest, and async ones do not go back."""
    trace = json.loads(json.dumps(trace))
    Draft202012Validator(SCHEMA).validate(trace)
    events: list[dict[str, Any]] = trace["traceEvents"]
    stacks: dict[tuple[object, ...], list[str]] = defaultdict(list)
    times: dict[tuple[object, ...], float] = defaultdict(float)
    for event in events:
        if event["ph"] not in "be":
            continue
        track = event["pid"], event["cat"], event["id2"]["local"]
        assert event["ts"] >= times[track], event
        times[track] = event["ts"]
        if event["ph"] == "b":
            stacks[track].append(event["name"])
        else:
            assert stacks[track].pop() == event["name"], event
    assert not any(stacks.values()), "every span that begins ends"
    _check_nesting(events)
    return events


def _check_nesting(events: list[dict[str, Any]]) -> None:
    """In nanoseconds, as Perfetto reads them: it drops a complete event that overlaps the one before it."""
    ends: dict[tuple[int, int], list[int]] = defaultdict(list)
    for event in events:
        if event["ph"] != "X":
            continue
        begin, around = round(event["ts"] * 1000), ends[event["pid"], event["tid"]]
        end = begin + round(event["dur"] * 1000)
        while around and around[-1] <= begin:
            around.pop()
        assert not around or end <= around[-1], event
        around.append(end)


def test_a_run_with_preemptions_is_a_valid_trace() -> None:
    engine = toy_engine(Fcfs(), toy_kv(8, 4, swap=64), preemption=Swap())
    recorder = engine.watch(1000.0)
    assert recorder is not None
    told = []
    for i in range(4):
        engine.add(toy_request(f"r{i}", [1 + i % 5] * 5, "greedy", 12))
    while engine.busy:
        engine.step()
        news = recorder.news(engine.stats(), "fcfs")
        fields = {name: getattr(news, name) for name in ("began", "requests", "progress", "spans", "steps")}
        told.append(LiveEvent(at=news.at, engines=[_engine(**fields)]))
    events = check_trace(perfetto_trace(told))

    steps = [event for event in events if event["ph"] == "X" and event["name"].startswith("step")]
    assert len(steps) == engine.stats().steps and all(event["dur"] > 0 for event in steps)
    assert {event["name"] for event in events if event["ph"] == "i"} >= {
        "preempted",
        "KV swap_out",
        "KV swap_in",
    }
    begun = [event["name"] for event in events if event["ph"] == "b"]
    assert {f"request r{i}" for i in range(4)} <= set(begun)
    assert {"waiting", "prefill", "decode", "swapped"} <= set(begun)
    assert sum(event["args"]["tokens"] for event in steps) == engine.stats().computed_tokens


def _engine(**news: Any) -> LiveEngine:
    return LiveEngine(model="m", name="m/0", replica="0", state="serving", **news)


def _request(state: str, reason: str = "") -> LiveRequest:
    return LiveRequest(id="r", arrival=1.0, state=state, finish_reason=reason)  # type: ignore[arg-type]


def test_requests_that_go_on_or_moved_or_whose_engine_died_are_ended_at_the_end() -> None:
    spans = [("r", "waiting", 1.0, 2.0), ("r", "decode", 2.0, None)]
    first = LiveEvent(at=3.0, first=True, engines=[_engine(requests=[_request("decode")], spans=spans)])
    died = LiveEvent(at=5.0, engines=[_engine(began=True, requests=[_request("waiting")])])
    moved = LiveEvent(at=5.0, engines=[_engine(requests=[_request("ended", "moved")])])
    for told in ([first], [first, died], [first, moved]):
        events = check_trace(perfetto_trace(told))
        assert [event["ts"] for event in events if event["ph"] == "e"][-1] == (told[-1].at - 1.0) * 1e6


def test_steps_that_follow_each_other_at_once_do_not_overlap() -> None:
    """Perfetto has dropped steps whose rounded ends came a nanosecond after the next one's beginning."""
    times = [1_795_000_000.0 + number * 0.0123456789 for number in range(200)]
    steps = [
        StepTrace(number=number, started=began, ended=ended, policy_ms=0.04, tokens=1)
        for number, (began, ended) in enumerate(pairwise(times))
    ]
    events = check_trace(
        perfetto_trace([LiveEvent(at=times[-1], first=True, engines=[_engine(steps=steps)])])
    )
    assert sum(event["ph"] == "X" for event in events) == 2 * len(steps)


def test_a_record_of_nothing_is_a_trace_of_nothing() -> None:
    assert check_trace(perfetto_trace([])) == []
