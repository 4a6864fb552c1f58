"""The boards and the alerts name metrics that there are, with the labels that they have."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml
from promql import FOLDER, SERIES, faults, rules

from turnout.scripts.boards.boards import boards, shown
from turnout.scripts.boards.queries import value
from turnout.scripts.metric_families import families

SDK = "pip install 'grafana-foundation-sdk==1769699379!11.6.0': without a version, it is of Grafana 10"
BOARDS = ["turnout-overview", "turnout-policies", "turnout-memory", "turnout-fleet", "turnout-ab"]


def test_there_are_five_boards_and_each_panel_has_a_place_and_a_query() -> None:
    assert [board.uid for board in boards()] == BOARDS
    for board in boards():
        panels = board.json()["panels"]
        assert len({panel["id"] for panel in panels}) == len(panels)
        taken = [
            (x, y)
            for panel in panels
            for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
            for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
        ]
        assert len(set(taken)) == len(taken), f"panels of {board.uid} lie over each other"
        assert max(x for x, _ in taken) < 24
        for panel in board.panels:
            assert panel.queries and all(query.legend for query in panel.queries), panel.title


def test_queries_name_metrics_and_labels_that_there_are() -> None:
    queries = [query.expr for board in boards() for panel in board.panels for query in panel.queries]
    assert len(queries) > 80
    assert not [fault for expr in [*queries, *(rule["expr"] for rule in rules())] for fault in faults(expr)]


@pytest.mark.parametrize(
    "expr",
    [
        "turnout:num_requests_walking",
        'turnout:num_requests_running{finished_reason="stop"}',
        "sum by (finished_reason) (rate(turnout:prompt_tokens_total[5m]))",
        "histogram_quantile(0.5, sum by (le) (rate(turnout:prompt_tokens_total[5m])))",
    ],
)
def test_a_query_of_what_there_is_not_would_be_found(expr: str) -> None:
    assert list(faults(expr))


def test_every_metric_is_on_a_board() -> None:
    seen = {name for board in boards() for name in shown(board)}
    unseen = [family.name for family in families().values() if not {n for n, _ in family.series} & seen]
    assert len(SERIES) > 50 and not unseen


def test_a_board_can_not_be_written_of_what_there_is_not() -> None:
    with pytest.raises(LookupError, match="there is no metric 'num_requests_walking'"):
        value("num_requests_walking")
    with pytest.raises(LookupError, match="has no label key"):
        value("num_requests_running", by=["key"])


def test_every_alert_has_a_series_that_sets_it_off() -> None:
    """`test_prometheus.py` has promtool run them."""
    cases = yaml.safe_load((Path(__file__).parent / "alerts_test.yml").read_text())["tests"]
    due = {each["alertname"] for case in cases for each in case["alert_rule_test"] if each.get("exp_alerts")}
    quiet = {each["alertname"] for case in cases for each in case["alert_rule_test"]} - due
    assert due == {rule["alert"] for rule in rules()} and not quiet


def test_files_that_are_mounted_and_provisioned_are_there() -> None:
    services = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
    mounted: dict[str, str] = {}
    for service in services.values():
        for volume in service["volumes"]:
            here, there, *_ = volume.split(":")
            if here.startswith("./"):
                assert (FOLDER / here).exists(), volume
                mounted[there] = here
    provisioning = FOLDER / "grafana" / "provisioning"
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "turnout.yaml").read_text())["providers"]
    folder = FOLDER / mounted[provider["options"]["path"]]
    assert sorted(path.stem for path in folder.glob("*.json")) == sorted(BOARDS)
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yaml").read_text())["datasources"]
    assert source["url"].removeprefix("http://") in " ".join(services["prometheus"]["command"])
    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home.startswith(provider["options"]["path"]) and (folder / home.rpartition("/")[2]).exists()


def test_grafanas_own_types_hold_all_that_is_written() -> None:
    """Decoded by Grafana's types and written again, no field has got lost: a misspelt one would."""
    sdk = pytest.importorskip("grafana_foundation_sdk.models.dashboard", reason=SDK)
    if "!10." in version("grafana-foundation-sdk"):
        pytest.skip(SDK)
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins

    register_default_plugins()
    for path in (FOLDER / "grafana" / "dashboards").glob("*.json"):
        written = json.loads(path.read_text())
        read = json.loads(JSONEncoder().encode(sdk.Dashboard.from_json(written)))
        assert not list(_lost(written, read, path.stem))


def _lost(written: Any, read: Any, path: str) -> list[str]:
    if isinstance(written, dict):
        if not isinstance(read, dict):
            return [path]
        return [
            lost
            for key, each in written.items()
            for lost in (_lost(each, read[key], f"{path}.{key}") if key in read else [f"{path}.{key}"])
        ]
    if isinstance(written, list):
        if not isinstance(read, list) or len(read) != len(written):
            return [path]
        return [
            lost
            for number, each in enumerate(written)
            for lost in _lost(each, read[number], f"{path}[{number}]")
        ]
    return [] if written == read else [f"{path}: {written!r} became {read!r}"]
