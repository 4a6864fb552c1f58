"""What a query of the boards and rules names: metrics, and the labels that it chooses or groups by."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from turnout.scripts.boards.queries import metrics_in
from turnout.scripts.metric_families import EVERYWHERE, families

FOLDER = Path(__file__).parents[3] / "deploy" / "observability"
SERIES = dict(chain.from_iterable(family.series for family in families().values()))
"""The labels of each series, by its name."""


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
    return list(group["rules"])


def faults(expr: str) -> Iterator[str]:
    """Says what of a query no scrape has."""
    names = metrics_in(expr)
    known = [SERIES[name] for name in names if name in SERIES]
    yield from (f"there is no {name}" for name in names if name not in SERIES)
    for name, matchers in re.findall(r"([\w:]+)\{([^}]*)\}", expr):
        for label in re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", matchers):
            if label not in SERIES.get(name, frozenset()) | EVERYWHERE:
                yield f"{name} has no label {label}"
    for labels in re.findall(r"\b(?:by|on|ignoring|without)\s*\(([^)]*)\)", expr):
        for label in filter(None, re.split(r"[\s,]+", labels)):
            if not all(label in each | EVERYWHERE for each in known):
                yield f"a metric of {expr} has no label {label}"
