"""Writes the tables of docs/ that say what the code says: fields, flags, types; and its examples.

python scripts/write_reference.py            # after a description in the code changed

A table stands in its page between ``<!-- written by scripts/write_reference.py: NAME -->`` and
``<!-- end -->``. What lies around it is written by hand.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pkgutil import iter_modules

import click

from turnout.scripts.reference import pages as folder
from turnout.scripts.reference.blocks import Blocks, pages, written

PAGES = [import_module(module.name) for module in iter_modules(folder.__path__, f"{folder.__name__}.")]
BLOCKS: Blocks = {name: write for page in PAGES for name, write in page.blocks().items()}


@click.command()
@click.option("--check", is_flag=True, help="Write nothing, and fail if a page is out of date.")
def main(check: bool) -> None:
    """Write the tables of docs/ that say what the code says."""
    stale = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if (current := written(text, BLOCKS)) != text:
            stale.append(page.name)
            if not check:
                page.write_text(current, encoding="utf-8")
    if stale:
        click.echo(f"{'out of date' if check else 'written'}: {', '.join(stale)}")
    sys.exit(1 if check and stale else 0)


if __name__ == "__main__":
    main()
