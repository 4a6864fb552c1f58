"""What `turnout top` draws: a line for each engine, then a table of requests."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from turnout.cli.terminal.printable import printable
from turnout.cli.top.rows import engine_figures, requests_shown
from turnout.cli.top.watched import Watched

__all__ = ["View", "drawn", "plain"]

STYLES = {
    "waiting": "yellow",
    "prefill": "cyan",
    "decode": "green",
    "preempted": "magenta",
    "swapped": "magenta",
    "serving": "green",
    "draining": "yellow",
}
FULL = 0.95
"""KV memory beyond this is shown as such."""
GAP, LAST_LEAST = 2, 12
"""Characters between columns, and of the last one at least."""
_DIRECTIONS = re.compile("[\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
"""Characters that hide text, or have it written in another direction."""


@dataclass
class View:
    """How it is to be shown."""

    url: str
    sort: str = "state"
    chosen: str = ""
    """Only requests that contain this."""
    typing: bool = False
    """`chosen` is being typed."""
    paused: bool = False
    trouble: str = ""
    """Why nothing comes."""


def plain(text: str) -> str:
    """Strangers' text on one line, made harmless for a terminal."""
    return _DIRECTIONS.sub("\ufffd", printable(" ".join(text.split())))


def drawn(watched: Watched, view: View, now: float, width: int, height: int | None) -> Group:
    """All of it. height: of the screen; None: as high as it gets, without the line of keys."""
    rows = requests_shown(watched, now, view.sort, view.chosen)
    engines = _engines(watched, now, width)
    parts: list[RenderableType] = [_head(view), engines, Text("")]
    room = len(rows)
    if height is not None:
        room = max(0, height - 6 - engines.row_count)
    parts.append(_requests(rows[:room], len(watched.engines) > 1, width))
    if len(rows) > room:
        parts.append(Text(f"… and {len(rows) - room:,} more", style="dim", no_wrap=True))
    elif not rows:
        parts.append(Text(_nothing(watched, view), style="dim"))
    if height is not None:
        parts.append(_keys(view))
    return Group(*parts)


def _nothing(watched: Watched, view: View) -> str:
    if watched.requests:
        return f"None of {len(watched.requests):,} requests contains {plain(view.chosen)!r}."
    return "No requests." if watched.engines else "No engine has said anything yet."


def _head(view: View) -> Text:
    head = Text(no_wrap=True, overflow="ellipsis")
    head.append("turnout top", style="bold")
    if view.trouble:
        head.append(f"  connection lost, trying again: {plain(view.trouble)}", style="bold red")
        return head
    if view.paused:
        head.append("  paused", style="bold yellow")
    if view.chosen and not view.typing:
        head.append(f"  only {plain(view.chosen)!r}", style="yellow")
    head.append(f"  sorted by {view.sort}  {plain(view.url)}")
    return head


def _keys(view: View) -> Text:
    if view.typing:
        return Text(f"filter: {plain(view.chosen)}▏ (Enter keeps it, Esc drops it)", no_wrap=True)
    return Text("q quit   p pause   s sort   f filter", style="dim", no_wrap=True)


@dataclass(frozen=True)
class _Column:
    title: str
    right: bool = False
    rank: int = 0
    """Where the screen is narrow, the highest goes first; one of 0 stays."""
    most: int = 30
    """Characters that it takes."""


def _table(columns: Sequence[_Column], rows: Sequence[Sequence[str | Text]], width: int) -> Table:
    """The columns that fit. The last one takes the room that is left."""
    texts = [[Text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    wide = [
        min(column.most, max([len(column.title), *(row[place].cell_len for row in texts)]))
        for place, column in enumerate(columns)
    ]
    *kept, last = range(len(columns))
    while sum(wide[place] + GAP for place in kept) + LAST_LEAST > width:
        least = max(kept, key=lambda place: columns[place].rank)
        if not columns[least].rank:
            break
        kept.remove(least)
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, expand=True, header_style="bold")
    for place in (*kept, last):
        column = columns[place]
        table.add_column(
            column.title,
            justify="right" if column.right else "left",
            no_wrap=True,
            overflow="ellipsis",
            width=None if place == last else wide[place],
            ratio=1 if place == last else None,
        )
    for row in texts:
        table.add_row(*(row[place] for place in (*kept, last)))
    return table


_ENGINE = (
    _Column("ENGINE"),
    _Column("STATE", most=10),
    _Column("RUN", right=True),
    _Column("WAIT", right=True),
    _Column("KV", right=True),
    _Column("TOK/S", right=True),
    _Column("STEP/S", right=True, rank=4),
    _Column("PREEMPT", right=True, rank=2),
    _Column("TTFT", right=True),
    _Column("P95", right=True, rank=3),
    _Column("TPOT", right=True, rank=1),
    _Column("SCHEDULER"),
)
_REQUEST = (
    _Column("REQUEST", most=16),
    _Column("CLIENT", most=16, rank=1),
    _Column("STATE"),
    _Column("#", right=True, rank=4),
    _Column("AGE", right=True),
    _Column("PROMPT", right=True, rank=2),
    _Column("OUT", right=True),
    _Column("TTFT", right=True, rank=5),
    _Column("PRE", right=True, rank=3),
    _Column("ENGINE", most=20, rank=6),
    _Column("WHY"),
)


def _engines(watched: Watched, now: float, width: int) -> Table:
    rows: list[list[str | Text]] = []
    for engine in sorted(watched.engines.values(), key=lambda each: each.key):
        row = engine_figures(watched, engine, now)
        full = row["kv_use"] is not None and row["kv_use"] > FULL
        rows.append(
            [
                plain(row["name"]),
                Text(plain(row["state"]), style=STYLES.get(row["state"], "red")),
                f"{row['running']:,}",
                f"{row['waiting']:,}",
                Text(_percent(row["kv_use"]), style="red" if full else ""),
                _number(row["output_tokens_per_second"]),
                _number(row["steps_per_second"]),
                f"{row['preemptions']:,}",
                _time(row["ttft_p50"]),
                _time(row["ttft_p95"]),
                _time(row["tpot_p50"]),
                plain(row["scheduler"]),
            ]
        )
    return _table(_ENGINE, rows, width)


def _requests(shown: Sequence[dict[str, Any]], several: bool, width: int) -> Table:
    columns = [column for column in _REQUEST if several or column.title != "ENGINE"]
    rows: list[list[str | Text]] = []
    for row in shown:
        out, most = row["output_tokens"], row["max_tokens"]
        rows.append(
            [
                plain(row["id"])[-16:],
                plain(row["client"]),
                Text(plain(row["state"]), style=STYLES.get(row["state"], "")),
                str(row["place"] or ""),
                _time(row["age"]),
                _prompt(row),
                f"{out}/{most}" if most else str(out),
                _time(row["ttft"]),
                str(row["preemptions"] or ""),
                *([plain(row["engine"])] if several else []),
                plain(row["why"]),
            ]
        )
    return _table(columns, rows, width)


def _prompt(row: dict[str, Any]) -> str:
    """The prompt's length, and while it is computed how far that is."""
    length: int = row["prompt_tokens"]
    if row["state"] != "prefill" or not length:
        return str(length)
    return f"{min(1.0, row['computed'] / length):.0%} of {length}"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
