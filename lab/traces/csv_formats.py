"""Traces in CSV: Azure's, BurstGPT's and Vidur's."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from turnout.core.errors import ConfigError
from turnout.lab.jobs.job import Job
from turnout.lab.traces.entry import TraceEntry

__all__ = ["CSV_FORMS", "read_csv"]


def _azure(row: TraceEntry) -> Job:
    """Microsoft's Azure LLM inference traces of 2023 and 2024."""
    text = row.text("TIMESTAMP")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise row.fault(f"'TIMESTAMP' should be a date and time, not {text!r}") from None
    at = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return Job(at.timestamp(), row.tokens("ContextTokens"), row.tokens("GeneratedTokens"))


def _burstgpt(row: TraceEntry) -> Job:
    """BurstGPT (Wang et al. 2024). Times are in seconds, and the model is taken for the client."""
    return Job(
        row.number("Timestamp"),
        row.tokens("Request tokens"),
        row.tokens("Response tokens"),
        client=row.text("Model"),
    )


def _vidur(row: TraceEntry) -> Job:
    """Vidur's traces. `arrived_at` is in seconds; without it, all arrive at once."""
    at = row.number("arrived_at") if "arrived_at" in row.fields else 0.0
    return Job(at, row.tokens("num_prefill_tokens"), row.tokens("num_decode_tokens"))


class CSVForm(NamedTuple):
    name: str
    columns: tuple[str, ...]
    """Columns that the header must have; there may be others."""
    read: Callable[[TraceEntry], Job]


CSV_FORMS = (
    CSVForm("Azure CSV", ("TIMESTAMP", "ContextTokens", "GeneratedTokens"), _azure),
    CSVForm("BurstGPT CSV", ("Timestamp", "Request tokens", "Response tokens"), _burstgpt),
    CSVForm("Vidur CSV", ("num_prefill_tokens", "num_decode_tokens"), _vidur),
)


def read_csv(path: Path, lines: Iterable[str]) -> Iterator[Job]:
    """The first line is the header."""
    rows = csv.reader(lines)
    header = [column.strip() for column in next(rows, [])]
    form = next((form for form in CSV_FORMS if set(form.columns) <= set(header)), None)
    if form is None:
        expected = " or ".join(f"{form.name} ({','.join(form.columns)})" for form in CSV_FORMS)
        raise ConfigError(
            f"{path}, line 1: no known trace has the header {','.join(header)!r:.120}; expected {expected}"
        )
    for row in rows:
        if not row:
            continue
        entry = TraceEntry(dict(zip(header, row, strict=False)), path, rows.line_num, form.name)
        if len(row) != len(header):
            raise entry.fault(f"{len(row)} values for {len(header)} columns")
        yield form.read(entry)
