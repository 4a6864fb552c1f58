"""docs/reference/workloads.md: generators, lengths and traces, and their options."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields
from functools import partial

from turnout.lab.traces.csv_formats import CSV_FORMS
from turnout.lab.traces.jsonl_formats import JSONL_FORMS
from turnout.lab.traces.sharegpt import SHAREGPT, read_sharegpt
from turnout.lab.traces.turnout_format import MARK, TURNOUT
from turnout.lab.workloads.generators import GENERATORS, Generator
from turnout.lab.workloads.lengths import KINDS, Lengths
from turnout.lab.workloads.replay import Trace
from turnout.scripts.reference.blocks import Blocks
from turnout.scripts.reference.options import options, options_by_name
from turnout.scripts.reference.tables import code, markdown, paragraph, table
from turnout.server.http.openapi.docstrings import field_docstrings


def blocks() -> Blocks:
    return {
        "generators": _generators,
        "options of generators": partial(options, Generator),
        "lengths": _lengths,
        "forms of traces": _forms,
        "options of traces": partial(options, Trace),
    }


def _generators() -> str:
    kinds = table(
        ("name", "arrivals"),
        [(code(name), paragraph(inspect.getdoc(kind) or "")) for name, kind in GENERATORS.items()],
    )
    return f"{kinds}\n{options_by_name(GENERATORS.items(), without=Generator.model_fields)}"


def _forms() -> str:
    """Each by its name, how it is recognized, and how it is read."""
    rows = [(SHAREGPT, "a list", markdown(inspect.getdoc(read_sharegpt) or ""))]
    for name, fields_of, read in (*CSV_FORMS, *JSONL_FORMS):
        rows.append((name, ", ".join(map(code, fields_of)), markdown(inspect.getdoc(read) or "")))
    rows.append((TURNOUT, code(MARK), "See below."))
    return table(("form", "is recognized by", "how it is read"), rows)


def _lengths() -> str:
    return table(
        ("lengths", "meaning"), [(code(_form(name, kind)), _meaning(kind)) for name, kind in KINDS.items()]
    )


def _form(name: str, kind: type[Lengths]) -> str:
    given = [field.name.upper() for field in fields(kind)]  # type: ignore[arg-type]
    return ":".join(given if name == "fixed" else [name, *given])


def _meaning(kind: type[Lengths]) -> str:
    """What it is, and what its arguments are, with the defaults of those that may be left out."""
    docstrings = field_docstrings(kind)
    parts = [inspect.getdoc(kind) or ""]
    for field in fields(kind):  # type: ignore[arg-type]
        default = "" if field.default is MISSING else f" ({field.default:,})"
        if text := docstrings.get(field.name, ""):
            parts.append(f"{code(field.name.upper())}{default}: {text}")
    return markdown(" ".join(parts))
