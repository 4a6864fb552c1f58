"""docs/reference/metrics.md: every metric, from the families that a scrape collects."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import Metric

from turnout.scripts.metric_families import engine_families, server_families
from turnout.scripts.reference.blocks import Blocks
from turnout.scripts.reference.tables import code, table
from turnout.server.metrics.request_metrics import PREFIX


def blocks() -> Blocks:
    return {"metrics of the server": _server, "metrics of the engine": _engine}


def _server() -> str:
    return _table(server_families())


def _engine() -> str:
    return _table(engine_families())


def _table(families: Iterable[Metric]) -> str:
    rows = [(code(_name(family)), family.type, family.documentation) for family in families]
    return table(("metric", "type", "what"), rows)


def _name(family: Metric) -> str:
    return family.name.removeprefix(PREFIX) + ("_total" if family.type == "counter" else "")
