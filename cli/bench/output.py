"""What the benchmarks have in common on the command line: files to write, and a progress bar."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from turnout.cli.options.output_file import OutputFile, writing
from turnout.core.version import own_version

__all__ = ["output_options", "progress_bar", "run_facts", "write_csv", "write_json"]

Function = TypeVar("Function", bound=Callable[..., Any])


def output_options(rows: str) -> Callable[[Function], Function]:
    """Decorates a command with ``--json`` and ``--csv``; `rows`: what a line of the CSV file is."""

    def decorate(function: Function) -> Function:
        for flag, what in (("csv", rows), ("json", "all figures")):
            about = f"File to write {what} to."
            option = click.option(f"--{flag}", f"{flag}_file", type=OutputFile(), metavar="FILE", help=about)
            function = option(function)
        return function

    return decorate


def run_facts() -> dict[str, str]:
    """Returns the date and Turnout's version."""
    return {"date": datetime.now(UTC).strftime("%Y%m%d-%H%M%S"), "turnout": own_version()}


def write_json(path: Path | None, figures: Mapping[str, object]) -> None:
    if path is not None:
        with writing(path):
            path.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def write_csv(path: Path | None, rows: Sequence[Mapping[str, object]]) -> None:
    """Writes a header and the rows; without rows only the header's line end."""
    if path is not None:
        with writing(path), path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]) if rows else [])
            writer.writeheader()
            writer.writerows(rows)


@contextmanager
def progress_bar(total: int, unit: str = "requests") -> Iterator[Callable[[object], None]]:
    """Shows progress on standard error, if that is a terminal. Yields a function to call per item."""
    from tqdm import tqdm

    with tqdm(total=total, desc=unit, disable=None) as bar:

        def done(_: object = None) -> None:
            bar.update()

        yield done
