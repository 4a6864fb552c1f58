"""Reads jobs from a trace of any known format.

The first line tells the format: `_read` tells CSV, JSON and JSON lines apart, `_read_json_lines` finds the
one of `JSONL_FORMS` whose fields the first entry has, and `read_csv` the one of `CSV_FORMS` by its columns.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from turnout.core import limits
from turnout.core.errors import ConfigError
from turnout.lab.jobs.job import Job
from turnout.lab.traces.csv_formats import CSV_FORMS, read_csv
from turnout.lab.traces.entry import TraceEntry
from turnout.lab.traces.jsonl_formats import JSONL_FORMS
from turnout.lab.traces.sharegpt import SHAREGPT, read_sharegpt
from turnout.lab.traces.tokens import CountTokens
from turnout.lab.traces.turnout_format import MARK, TURNOUT, VERSION, read_own

__all__ = ["TraceFile", "read_trace"]

FORMS = ", ".join([SHAREGPT, TURNOUT, *(form.name for form in (*JSONL_FORMS, *CSV_FORMS))])


class TraceFile(NamedTuple):
    jobs: list[Job]
    """Jobs by arrival. The first arrives at 0, except in Turnout's own format, which is read as it is."""
    concurrency: int | None = None
    """The concurrency of a closed loop, which only Turnout's own format has."""
    skipped: int = 0
    """Requests without a prompt or an output: most of them failed when the trace was recorded."""


def read_trace(path: Path, tokens: CountTokens) -> TraceFile:
    """Raises ConfigError that says where the file is not what was expected."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            trace = _read(path, file, tokens)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except csv.Error as error:
        raise ConfigError(f"{path} is not CSV: {error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text; expected {FORMS}") from None
    if not trace.jobs:
        sought = "requests with a prompt and an output" if trace.skipped else "requests"
        raise ConfigError(f"{path} has no {sought}")
    return trace


def _read(path: Path, file: TextIO, tokens: CountTokens) -> TraceFile:
    head = next(_bounded(path, file), "")
    file.seek(0)
    if head.lstrip().startswith("["):
        if path.stat().st_size > limits.TRACE_JSON.most:
            raise ConfigError(f"{path} is larger than {limits.TRACE_JSON.amount}; make it JSON lines")
        jobs = read_sharegpt(path, _parsed(path, 1, file.read()), tokens)
        return TraceFile(_counted(path, jobs))
    if head.lstrip().startswith("{"):
        return _read_json_lines(path, _bounded(path, file))
    if "," in head:
        return _recorded(path, read_csv(path, _bounded(path, file)))
    raise ConfigError(f"{path}, line 1: {head.strip()[:60]!r} does not begin a known trace; expected {FORMS}")


def _read_json_lines(path: Path, lines: Iterable[str]) -> TraceFile:
    stripped = enumerate(map(str.strip, lines), 1)
    objects = ((number, _parsed(path, number, line)) for number, line in stripped if line)
    first_number, first = next(objects)
    if not isinstance(first, dict):
        raise ConfigError(f"{path}, line {first_number}: an object is expected")
    if MARK in first:
        if first[MARK] != VERSION:
            raise ConfigError(f"{path}, line {first_number}: version {first[MARK]!r} is not {VERSION}")
        jobs = _counted(path, read_own(_entries(path, objects, TURNOUT)))
        return TraceFile(_by_arrival(jobs), _concurrency(path, first_number, first))
    entries = chain([(first_number, first)], objects)
    for form in JSONL_FORMS:
        if first.keys() >= set(form.fields):
            return _recorded(path, form.read(_entries(path, entries, form.name)))
    raise ConfigError(
        f"{path}, line {first_number}: no known trace has the fields {', '.join(first)}; expected {FORMS}"
    )


def _entries(path: Path, objects: Iterable[tuple[int, Any]], form: str) -> Iterator[TraceEntry]:
    for number, fields in objects:
        entry = TraceEntry(fields if isinstance(fields, dict) else {}, path, number, form)
        if not isinstance(fields, dict):
            raise entry.fault("an object is expected")
        yield entry


def _parsed(path: Path, line: int, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}, line {line + error.lineno - 1}: not valid JSON: {error.msg}") from None
    except RecursionError:
        raise ConfigError(f"{path}, line {line}: lists and objects lie too deep within each other") from None
    except ValueError:  # an integer of thousands of digits
        raise ConfigError(f"{path}, line {line}: a number is too long") from None


def _bounded(path: Path, file: TextIO) -> Iterator[str]:
    """Yields lines. Raises ConfigError for one that is too long to be one, before it is read."""
    most, number = limits.TRACE_LINE.whole, 0
    while line := file.readline(most + 1):
        number += 1
        if len(line) > most:
            raise ConfigError(f"{path}, line {number}: longer than {limits.TRACE_LINE.amount}")
        yield line


def _counted(path: Path, jobs: Iterable[Job]) -> list[Job]:
    counted = list(islice(jobs, limits.TRACE_JOBS.whole + 1))
    if len(counted) > limits.TRACE_JOBS.most:
        raise ConfigError(f"{path} has more than {limits.TRACE_JOBS.amount}; give a part of it")
    return counted


def _concurrency(path: Path, number: int, header: Mapping[str, Any]) -> int | None:
    given = header.get("concurrency")
    if given is None or (type(given) is int and given > 0):
        return given
    raise ConfigError(f"{path}, line {number}: 'concurrency' should be null or at least 1, not {given!r:.60}")


def _by_arrival(jobs: Iterable[Job]) -> list[Job]:
    return sorted(jobs, key=attrgetter("at"))


def _recorded(path: Path, jobs: Iterable[Job]) -> TraceFile:
    """What other systems recorded, from time 0 on."""
    skipped = 0

    def served() -> Iterator[Job]:
        nonlocal skipped
        for job in jobs:
            if job.prompt and job.output:
                yield job
            else:
                skipped += 1

    ordered = _by_arrival(_counted(path, served()))
    begin = ordered[0].at if ordered else 0.0
    return TraceFile([replace(job, at=job.at - begin) for job in ordered], skipped=skipped)
