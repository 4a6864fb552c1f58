"""docs/reference/metrics.md: every metric, from the families that a scrape collects."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import Metric

from turnout.scripts.metric_families import engine_families, server_families
from turnout.scripts.reference.blocks import Blocks
from turnout.scripts.reference.tables import code, table
from turnout.server.metrics.request_metrics import PREFIX
from turnout.server.metrics.vllm_names import OLDER, SAME, VLLM

MADE = {
    "num_requests_waiting_by_reason": "`num_requests_waiting`, all with `reason` `capacity`",
    "cache_config_info": "1; `block_size` and `num_gpu_blocks` are labels",
}
"""What vLLM has and Turnout has in another form."""


def blocks() -> Blocks:
    return {"metrics of the server": _server, "metrics of the engine": _engine, "vllm names": _vllm}


def _server() -> str:
    return _table(server_families())


def _engine() -> str:
    return _table(engine_families())


def _vllm() -> str:
    """Each name of vLLM that is answered, its type, and where its value is from."""
    families = [*server_families(), *engine_families(drafts=True)]
    ours = {each.name.removeprefix(PREFIX): each for each in families}
    names = [(name, name) for name in ours if name in SAME]
    names += [(theirs, name) for name, theirs in OLDER.items()]
    rows = [
        (code(VLLM + theirs + _suffix(ours[name])), ours[name].type, code(_name(ours[name])))
        for theirs, name in names
    ]
    rows += [(code(VLLM + name), "gauge", what) for name, what in MADE.items()]
    return table(("metric", "type", "from"), rows)


def _table(families: Iterable[Metric]) -> str:
    rows = [(code(_name(family)), family.type, family.documentation) for family in families]
    return table(("metric", "type", "what"), rows)


def _name(family: Metric) -> str:
    return family.name.removeprefix(PREFIX) + _suffix(family)


def _suffix(family: Metric) -> str:
    return "_total" if family.type == "counter" else ""
