"""What `turnout top` draws: a line for each engine, then a table of requests."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
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
GAP = 2
"""Characters between columns."""
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
    rank: int
    """Where the screen is narrow, the highest goes first; the one of 0 stays."""
    least: int | None = None
    """Characters that a text may be cut to; None: a figure, which is whole."""
    most: int = 30
    """Characters that a text takes."""
    rest: bool = False
    """It takes the room that is left."""
    end: bool = False
    """Of a text that is cut, the end is shown: names begin alike."""


def _table(columns: Sequence[_Column], rows: Sequence[Sequence[str | Text]], width: int) -> Table:
    """The columns that fit: texts are cut first, then columns left out."""
    texts = [[Text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    longest = [
        max([len(column.title), *(row[place].cell_len for row in texts)])
        for place, column in enumerate(columns)
    ]
    wide = _widths(columns, longest, width)
    spread = any(columns[place].rest for place in wide)
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, expand=spread, header_style="bold")
    for place, characters in wide.items():
        column = columns[place]
        table.add_column(
            column.title,
            justify="right" if column.least is None else "left",
            no_wrap=True,
            overflow="ellipsis",
            width=None if column.rest else characters,
            ratio=1 if column.rest else None,
        )
    for row in texts:
        table.add_row(
            *(_end(row[place], wide[place]) if columns[place].end else row[place] for place in wide)
        )
    return table


def _end(cell: Text, width: int) -> Text:
    """The end of a text that is wider."""
    if cell.cell_len <= width:
        return cell
    text = cell.plain[-width:]
    while cell_len(text) >= width:
        text = text[1:]
    return Text(f"…{text}")


def _widths(columns: Sequence[_Column], longest: Sequence[int], width: int) -> dict[int, int]:
    """The columns that fit, and the characters of each. longest: what each would take."""
    wide, least = {}, {}
    for place, (column, natural) in enumerate(zip(columns, longest, strict=True)):
        wide[place] = least[place] = natural
        if column.least is not None:
            wide[place] = column.least if column.rest else min(natural, column.most)
            least[place] = min(wide[place], column.least)
    while len(least) > 1 and sum(least.values()) + GAP * (len(least) - 1) > width:
        place = max(least, key=lambda place: columns[place].rank)
        del wide[place], least[place]
    while sum(wide.values()) + GAP * (len(wide) - 1) > width:
        place = max(wide, key=lambda place: wide[place] - least[place])
        if wide[place] == least[place]:  # the last one, on a screen that has no room for it
            break
        wide[place] -= 1
    return wide


_ENGINE = (
    _Column("ENGINE", 0, least=8, end=True),
    _Column("STATE", 1, least=7, most=10),
    _Column("RUN", 2),
    _Column("WAIT", 5),
    _Column("KV", 4),
    _Column("TOK/S", 3),
    _Column("STEP/S", 11),
    _Column("PREEMPT", 9),
    _Column("TTFT", 6),
    _Column("P95", 10),
    _Column("TPOT", 8),
    _Column("SCHEDULER", 7, least=12, rest=True),
)
_REQUEST = (
    _Column("REQUEST", 0, least=8, most=16, end=True),
    _Column("CLIENT", 5, least=6, most=16),
    _Column("STATE", 2, least=7),
    _Column("#", 8),
    _Column("AGE", 3),
    _Column("PROMPT", 6),
    _Column("OUT", 1),
    _Column("TTFT", 9),
    _Column("PRE", 7),
    _Column("ENGINE", 10, least=8, most=20, end=True),
    _Column("WHY", 4, least=12, rest=True),
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
                plain(row["id"]),
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
