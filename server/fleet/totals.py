"""What the engines of a fleet report, as one engine would report it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from math import gcd
from typing import TypeVar

import msgspec

from turnout.core.types.messages import (
    KVGroupState,
    KVSnapshot,
    PinnedPrefix,
    PinnedPrefixes,
    PluginFigure,
    ProfileFiles,
    Reply,
    SchedulerState,
    Stats,
)

__all__ = ["merged_reply", "total_stats"]

Value = TypeVar("Value")
Record = TypeVar("Record", bound=msgspec.Struct)

POSITIONS = frozenset(KVSnapshot.__struct_fields__) - {"unit", "states", "groups"}
"""What snapshots count, all in token positions."""


def total_stats(reports: Sequence[Stats]) -> Stats | None:
    """The sums of reports; None without one. Gauges of plugins are added, too."""
    if not reports:
        return None
    sums = {
        field: sum(getattr(report, field) for report in reports)
        for field in Stats.__struct_fields__
        if field not in ("counters", "figures")
    }
    counters: Counter[str] = Counter()
    for report in reports:
        counters.update(report.counters)
    return Stats(**sums, counters=dict(counters), figures=_total_figures(reports))


def _total_figures(reports: Iterable[Stats]) -> list[PluginFigure]:
    values: dict[tuple[str, str, bool], float] = {}
    for report in reports:
        for figure in report.figures:
            key = figure.plugin, figure.name, figure.counter
            values[key] = values.get(key, 0.0) + figure.value
    return [PluginFigure(plugin, name, value, counter) for (plugin, name, counter), value in values.items()]


def merged_reply(replies: Sequence[Reply]) -> Reply:
    """One answer for those that several engines gave to the same command: an error, if one gave one."""
    if any(isinstance(reply.value, ProfileFiles) for reply in replies):
        replies = _of_profiles(replies)
    first = next((reply for reply in replies if reply.error_kind), replies[0])
    if first.error_kind or len(replies) == 1:
        return first
    values = [reply.value for reply in replies if reply.value is not None]
    return msgspec.structs.replace(first, value=reduce(_merged, values)) if values else first


def _of_profiles(replies: Sequence[Reply]) -> list[Reply]:
    """Those of engines that are profiled; others, such as one that has been replaced since, are named."""
    notes = [f"one engine is left out: {reply.error}" for reply in replies if reply.error_kind]
    good = [reply for reply in replies if not reply.error_kind]
    lacking = Reply(id=good[0].id, value=ProfileFiles([], notes))
    return [*good, lacking] if notes else good


def _merged(one: Value, other: Value) -> Value:
    """Engines that a rollout changed, and those of workers, may have other pools than the rest."""
    if isinstance(one, SchedulerState) and isinstance(other, SchedulerState):
        return _sum(one, other, ("policy_faults", "preemptions", "running", "waiting"))
    if isinstance(one, KVSnapshot) and isinstance(other, KVSnapshot):
        unit = gcd(one.unit, other.unit)
        states = [*_states(one, unit), *_states(other, unit)]
        return msgspec.structs.replace(
            _sum(one, other, POSITIONS), unit=unit, states=states, groups=_merged_groups(one, other)
        )
    if isinstance(one, ProfileFiles) and isinstance(other, ProfileFiles):
        notes = list(dict.fromkeys([*one.notes, *other.notes]))
        return msgspec.structs.replace(one, files=[*one.files, *other.files], notes=notes)
    if isinstance(one, PinnedPrefix) and isinstance(other, PinnedPrefix):
        tokens, cached = min(one.tokens, other.tokens), min(one.cached, other.cached)
        return msgspec.structs.replace(one, tokens=tokens, cached=cached)
    if isinstance(one, PinnedPrefixes) and isinstance(other, PinnedPrefixes):
        return msgspec.structs.replace(one, prefixes=_merged_prefixes(one.prefixes, other.prefixes))
    return one


def _sum(one: Record, other: Record, fields: Iterable[str]) -> Record:
    return msgspec.structs.replace(
        one, **{name: getattr(one, name) + getattr(other, name) for name in fields}
    )


def _merged_prefixes(one: Sequence[PinnedPrefix], other: Sequence[PinnedPrefix]) -> list[PinnedPrefix]:
    """Of a prefix, the tokens that every engine has in memory count: none, where one has not pinned it."""
    mine, others = ({prefix.name: prefix for prefix in prefixes} for prefixes in (one, other))
    both = {name: _merged(mine[name], others[name]) for name in mine.keys() & others.keys()}
    alone = {name: msgspec.structs.replace(prefix, cached=0) for name, prefix in (mine | others).items()}
    return list((alone | both).values())


def _states(snapshot: KVSnapshot, unit: int) -> Iterator[tuple[str, int]]:
    """The runs of a pool in units that may be smaller than its own."""
    for state, count in snapshot.states:
        yield state, count * (snapshot.unit // unit)


def _merged_groups(one: KVSnapshot, other: KVSnapshot) -> list[KVGroupState]:
    """The groups of both: those of the same window are added up."""
    if not (one.groups or other.groups):
        return []
    merged, left = list[KVGroupState](), list(_groups(other))
    for group in _groups(one):
        same = next((each for each in left if each.window == group.window), None)
        if same is not None:
            left.remove(same)
            group = _sum(group, same, ("held", "cached"))
        merged.append(group)
    return [*merged, *left]


def _groups(snapshot: KVSnapshot) -> Sequence[KVGroupState]:
    """A pool without groups keeps all layers in full, together."""
    alone = KVGroupState(window=None, held=snapshot.held, cached=snapshot.cached)
    return snapshot.groups or [alone]
