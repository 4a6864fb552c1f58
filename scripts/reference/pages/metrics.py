"""docs/reference/metrics.md: every metric, from the families that a scrape collects."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from prometheus_client.core import Metric

from turnout.core.types.messages import KVGroupState, KVSnapshot, Stats
from turnout.scripts.reference.blocks import Blocks
from turnout.scripts.reference.tables import code, table
from turnout.server.metrics.engine_metrics import Scrape
from turnout.server.metrics.model_metrics import ModelScrape
from turnout.server.metrics.request_metrics import PREFIX, RequestMetrics


def blocks() -> Blocks:
    return {"metrics of the server": _server, "metrics of the engine": _engine}


def _server() -> str:
    loaded = ModelScrape("model", loaded=True, waiting=0, loads=0)
    return _table([*RequestMetrics("model", max_model_len=1).registry.collect(), *loaded.collect()])


def _engine() -> str:
    stats = msgspec.convert(
        {
            **dict.fromkeys(Stats.__struct_fields__, 1),
            "counters": {},
            "figures": [["", "", 1, True], ["", "", 1, False]],
        },
        Stats,
    )
    group = dict.fromkeys(KVGroupState.__struct_fields__, 1)
    kv = msgspec.convert(
        {**dict.fromkeys(KVSnapshot.__struct_fields__, 1), "states": [], "groups": [group]}, KVSnapshot
    )
    return _table(Scrape("model", 0, stats, kv, bytes_per_token=1).collect())


def _table(families: Iterable[Metric]) -> str:
    rows = [(code(_name(family)), family.type, family.documentation) for family in families]
    return table(("metric", "type", "what"), rows)


def _name(family: Metric) -> str:
    return family.name.removeprefix(PREFIX) + ("_total" if family.type == "counter" else "")
