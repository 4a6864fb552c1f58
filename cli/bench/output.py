"""What the benchmarks have in common on the command line: files to write, and a progress bar."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import click

from turnout.cli.options.output_file import OutputFile, writing

__all__ = ["output_options", "progress_bar", "run_facts", "write_csv", "write_json"]

Function = TypeVar("Function", bound=Callable[..., Any])


def output_options(rows: str) -> Callable[[Function], Function]:
    """``--json`` and ``--csv``; `rows` says what a line of the latter is."""

    def decorate(function: Function) -> Function:
        for flag, what in (("csv", rows), ("json", "all figures")):
            about = f"Write {what} there."
            option = click.option(f"--{flag}", f"{flag}_file", type=OutputFile(), metavar="FILE", help=about)
            function = option(function)
        return function

    return decorate


def run_facts() -> dict[str, str]:
    """When, and with what."""
    return {"date": datetime.now(UTC).strftime("%Y%m%d-%H%M%S"), "turnout": version("turnout")}


def write_json(path: Path | None, figures: Mapping[str, object]) -> None:
    if path is not None:
        with writing(path):
            path.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def write_csv(path: Path | None, rows: Sequence[Mapping[str, object]]) -> None:
    """A header, and the rows; nothing but the header's line where there are none."""
    if path is not None:
        with writing(path), path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]) if rows else [])
            writer.writeheader()
            writer.writerows(rows)


@contextmanager
def progress_bar(total: int, unit: str = "requests") -> Iterator[Callable[[object], None]]:
    """On standard error, where that is a terminal. Yields what to call when one more is done."""
    from tqdm import tqdm

    with tqdm(total=total, desc=unit, disable=None) as bar:

        def done(_: object = None) -> None:
            bar.update()

        yield done
