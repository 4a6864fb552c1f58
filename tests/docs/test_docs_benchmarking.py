"""benchmark.md and workloads.md have every command and figure as they are, and their examples are valid."""

from __future__ import annotations

import json
import re
from pathlib import Path

from documents import DOCS, code, rows

from turnout.cli.bench.group import COMMANDS
from turnout.lab.jobs.job import Job
from turnout.lab.results.summary import LATENCIES, summarize
from turnout.lab.workloads.source import load_workload

(BENCHMARKING,) = (document for document in DOCS if document.path.name == "benchmark.md")
(WORKLOADS,) = (document for document in DOCS if document.path.name == "workloads.md")


def first_column(text: str) -> list[str]:
    return [name for row in rows(text) for name in code(row[0])]


def test_every_command_is_in_the_first_table() -> None:
    assert re.findall(r"^\| \[`turnout bench (\w+)`\]", BENCHMARKING.text, re.MULTILINE) == list(COMMANDS)


def test_every_figure_is_there() -> None:
    named = set(first_column(BENCHMARKING.section("What is measured")))
    figures = {name for name in summarize([], 0.0).as_json() if not name.endswith("_ms")}
    assert named == figures | set(LATENCIES) | {"lag_p99_ms", "warnings", "interrupted"}


# ------------------------------------------------------------------ workloads


def test_the_example_of_our_own_form_is_one(tmp_path: Path) -> None:
    file = tmp_path / "example"
    (example,) = WORKLOADS.blocks("json")
    file.write_text(example)
    jobs = load_workload(str(file), 0).jobs
    assert len(jobs) == len(example.splitlines()) - 1
    fields = {name for line in example.splitlines()[1:] for name in json.loads(line)}
    assert fields == set(Job.__dataclass_fields__)


def test_the_workloads_that_are_shown_are_workloads() -> None:
    shown = re.findall(
        r"--workload (\"[^\"]+\"|\S+)", "\n".join([*BENCHMARKING.blocks(""), *WORKLOADS.blocks("")])
    )
    generated = [spec.strip('"') for spec in shown if "trace" not in spec]
    assert len(generated) == 3
    assert all(load_workload(spec, 0).jobs for spec in generated)
