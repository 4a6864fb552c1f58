"""Counts the words of docs/, as ``wc -w`` does: all, and those that people wrote.

python scripts/docs_words.py
"""

from __future__ import annotations

import click

from turnout.scripts.reference.blocks import DOCS, by_hand, pages


def words(text: str) -> int:
    return len(text.split())


def written_by_hand() -> int:
    """Words of all pages, without what scripts/write_reference.py writes."""
    return sum(words(by_hand(page.read_text(encoding="utf-8"))) for page in pages())


@click.command()
def main() -> None:
    """Print the words of each page and of all: by hand, and with the tables that the code writes."""
    counts = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        counts.append((words(by_hand(text)), words(text), str(page.relative_to(DOCS))))
    counts.append((sum(hand for hand, *_ in counts), sum(every for _, every, _ in counts), "in all"))
    click.echo("by hand    all")
    for hand, every, name in sorted(counts):
        click.echo(f"{hand:7,d} {every:6,d}  {name}")


if __name__ == "__main__":
    main()
