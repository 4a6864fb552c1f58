"""Writes docs/reference/limits.md: every bound on what a client may send, from core/limits.py.

python scripts/write_limits.py            # after a limit changed
"""

from __future__ import annotations

from pathlib import Path

import click

from turnout.core.limits import Limit, all_limits

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "limits.md"
HEAD = """# Limits

What a client may send or make the server do, and what it is told beyond that.
`scripts/write_limits.py` writes this page from `core/limits.py`.

| what | at most | option | answer |
|---|---|---|---|
"""


def page() -> str:
    return HEAD + "".join(map(_row, all_limits().values()))


def _row(limit: Limit) -> str:
    option = f"`{limit.option}`" if limit.option else ""
    return f"| {limit.what} | {_amount(limit)} | {option} | {limit.answer} |\n"


def _amount(limit: Limit) -> str:
    if limit.unit == "bytes" and limit.most % 2**20 == 0:
        return f"{limit.most / 2**20:,.0f} MiB"
    return f"{limit.most:,.10g} {limit.unit}"


@click.command()
def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
