"""Turnout's own form: JSON lines, a header first, then a job on each line.

::

    {"turnout_workload": 1, "name": "chat", "concurrency": null}
    {"at": 0.25, "prompt": 120, "output": 40, "client": "a"}

The fields are those of `Job`; all but the first three may be missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path

from turnout.core.errors import did_you_mean
from turnout.lab.jobs.job import Job, Workload
from turnout.lab.traces.entry import TraceEntry

__all__ = ["MARK", "TURNOUT", "VERSION", "read_own", "write_workload"]

TURNOUT = "Turnout JSONL"
"""The format, as messages name it."""
MARK = "turnout_workload"
VERSION = 1
FIELDS = {field.name: field.default for field in fields(Job)}


def write_workload(workload: Workload, path: Path) -> None:
    """Writes a workload so that `turnout.lab.workloads.source.load_workload` reads it."""
    with path.open("w", encoding="utf-8") as file:
        header = {MARK: VERSION, "name": workload.name, "concurrency": workload.concurrency}
        file.write(json.dumps(header) + "\n")
        for job in workload.jobs:
            values = {name: getattr(job, name) for name in FIELDS}
            file.write(json.dumps({k: v for k, v in values.items() if v != FIELDS[k]}) + "\n")


def read_own(entries: Iterable[TraceEntry]) -> Iterator[Job]:
    for entry in entries:
        if unknown := entry.fields.keys() - FIELDS.keys():
            name = min(unknown)
            raise entry.fault(
                f"there is no field {name!r}; known: {', '.join(FIELDS)}{did_you_mean(name, FIELDS)}"
            )
        yield _job(entry)


def _job(entry: TraceEntry) -> Job:
    job = Job(
        at=entry.seconds("at"),
        prompt=entry.tokens("prompt"),
        output=entry.tokens("output"),
        blocks=entry.names("blocks"),
        block_size=entry.tokens("block_size") if "block_size" in entry.fields else 0,
        session=entry.text("session"),
        think=None if entry.fields.get("think") is None else entry.seconds("think"),
        client=entry.text("client"),
        priority=int(entry.number("priority")) if "priority" in entry.fields else 0,
        deadline_ms=entry.milliseconds("deadline_ms"),
        ttft_deadline_ms=entry.milliseconds("ttft_deadline_ms"),
    )
    if not job.prompt:
        raise entry.fault("'prompt' must be at least 1")
    if job.blocks and not job.block_size:
        raise entry.fault("'blocks' need a 'block_size'")
    return job
