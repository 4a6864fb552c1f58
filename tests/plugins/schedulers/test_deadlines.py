"""A request whose deadline has passed: its client hears of it, and its memory is free at once."""

from __future__ import annotations

import msgspec
import pytest
from toy import toy_engine, toy_kv, toy_request

from turnout.core.errors import ConfigError
from turnout.core.registry.registry import Registry
from turnout.core.types.request import RequestSpec
from turnout.plugins.schedulers.deadline import Deadline


def request_(name: str, tokens: int, **deadlines: float) -> RequestSpec:
    spec = toy_request(name, [1, 2, 3], "greedy", tokens)
    params = msgspec.structs.replace(spec.params, ignore_eos=True)
    return msgspec.structs.replace(spec, params=params, **deadlines)


def serve(engine, *specs):
    """One delta list a second, until all is done."""
    now = 0.0
    engine.clock = lambda: now
    for spec in specs:
        engine.add(spec)
    steps = []
    while engine.busy:
        steps.append(engine.step())
        now += 1.0
    return steps


def errors(steps):
    return [
        (second, d.request_id, d.error_kind, d.error)
        for second, ds in enumerate(steps)
        for d in ds
        if d.error
    ]


def test_the_hopeless_are_dropped_running_or_waiting_and_their_memory_is_free():
    kv = toy_kv(64, 4)
    engine = toy_engine(Deadline(), kv, slots=1)
    runs = request_("runs", 40, deadline=6.0)
    waits = request_("waits", 9, ttft_deadline=6.5, deadline=7.0)
    holds = request_("holds", 12, deadline=30.0)
    steps = serve(engine, runs, waits, holds)
    assert errors(steps) == [
        (7, "runs", "timeout", "the request's deadline passed before it was finished"),
        (7, "waits", "timeout", "the request's deadline passed before its first token came"),
    ]
    assert sum(len(d.tokens) for deltas in steps for d in deltas if d.request_id == "holds") == 12
    assert kv.free == kv.capacity and not kv.tables


def test_until_its_first_token_the_ttft_deadline_counts():
    engine = toy_engine(Deadline(), toy_kv(64, 4), slots=1)
    begins = request_("begins", 9, ttft_deadline=1.0, deadline=3.5)
    then = request_("then", 9, deadline=20.0, ttft_deadline=3.0)
    steps = serve(engine, then, begins)
    served = [d.request_id for deltas in steps for d in deltas if d.tokens]
    assert served[:4] == ["begins", "then", "begins", "begins"]
    assert [error[:2] for error in errors(steps)] == [(4, "begins")]


def test_served_last_they_still_get_their_answer():
    engine = toy_engine(Deadline("last"), toy_kv(64, 4), slots=1)
    specs = [request_("hopeless", 9, deadline=2.0), request_("free", 6), request_("due", 4, deadline=20.0)]
    steps = serve(engine, *specs)
    assert not errors(steps)
    ended = [d.request_id for deltas in steps for d in deltas if d.finish_reason]
    assert ended == ["due", "free", "hopeless"]


def test_an_unknown_way_with_the_hopeless_is_refused_by_name():
    with pytest.raises(ConfigError, match="hopeless"):
        Registry.load().create("scheduler", "deadline:hopeless=keep")
    with pytest.raises(ConfigError, match="'drop' or 'last', not 'keep'"):
        Deadline("keep")  # type: ignore[arg-type]
