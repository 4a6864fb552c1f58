"""docs/reference/workloads.md: the generators, lengths, and options of both and of traces."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields

from turnout.lab.workloads.generators import GENERATORS, Generator
from turnout.lab.workloads.lengths import KINDS, Lengths
from turnout.lab.workloads.replay import Trace
from turnout.scripts.reference.docstrings import field_docstrings
from turnout.scripts.reference.options import options, options_by_name
from turnout.scripts.reference.tables import code, markdown, paragraph, table


def generators() -> str:
    kinds = table(
        ("name", "arrivals"),
        [(code(name), paragraph(inspect.getdoc(kind) or "")) for name, kind in GENERATORS.items()],
    )
    return f"{kinds}\n{options_by_name(GENERATORS.items(), without=Generator.model_fields)}"


def shared() -> str:
    return options(Generator)


def trace() -> str:
    return options(Trace)


def lengths() -> str:
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
