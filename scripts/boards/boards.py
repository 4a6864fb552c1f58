"""All boards, and the metrics that are on none of them: those get panels of their own."""

from __future__ import annotations

from dataclasses import replace

from turnout.scripts.boards.arms import arms
from turnout.scripts.boards.board import Board, Panel, Row
from turnout.scripts.boards.fleet import fleet
from turnout.scripts.boards.memory import memory
from turnout.scripts.boards.overview import overview
from turnout.scripts.boards.panels import latency, one
from turnout.scripts.boards.policies import policies
from turnout.scripts.boards.queries import metrics_in
from turnout.scripts.metric_families import Family, families
from turnout.server.metrics.request_metrics import PREFIX

__all__ = ["boards", "shown"]


def boards() -> list[Board]:
    """The five. The first has whatever metric is on no board, so that none is forgotten."""
    first, *others = overview(), policies(), memory(), fleet(), arms()
    there = {name for board in (first, *others) for name in shown(board)}
    rest = [_panel(family) for family in families().values() if not {n for n, _ in family.series} & there]
    rows = [*first.rows, Row("Everything else", rest)] if rest else first.rows
    return [replace(first, rows=rows), *others]


def shown(board: Board) -> set[str]:
    """The names of the series in its queries."""
    return {name for panel in board.panels for query in panel.queries for name in metrics_in(query.expr)}


def _panel(family: Family) -> Panel:
    name = family.name.removeprefix(PREFIX)
    by = sorted(family.labels)
    title = name.removesuffix("_total").replace("_", " ").capitalize()
    if family.type == "histogram":
        return latency(name, title, by=by)
    return one(name, title + (", per second" if family.type == "counter" else ""), by=by)
