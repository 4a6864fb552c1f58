"""A Grafana dashboard as JSON: rows of panels, laid out from left to right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from turnout.scripts.boards.queries import Query, metric

Json = dict[str, Any]
SCHEMA = 39
"""Grafana 10.4's; later ones read it and bring it up to date."""
COLUMNS, HEIGHT = 24, 8
SOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True)
class Panel:
    """A panel. A description of its own is for what the first metric's help does not tell."""

    title: str
    queries: Sequence[Query]
    unit: str = "short"
    description: str = ""
    kind: str = "timeseries"
    """``timeseries``, ``stat`` or ``heatmap``."""
    width: int = 8
    stacked: bool = False
    most: float | None = None
    """The axis ends here."""


@dataclass(frozen=True)
class Row:
    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Board:
    uid: str
    title: str
    description: str
    rows: Sequence[Row]
    tags: Sequence[str] = field(default=("turnout",))

    @property
    def panels(self) -> list[Panel]:
        return [panel for row in self.rows for panel in row.panels]

    def json(self) -> Json:
        return {
            "annotations": {"list": []},
            "description": self.description,
            "editable": True,
            "fiscalYearStartMonth": 0,
            "graphTooltip": 1,
            "links": [_others()],
            "panels": list(_laid_out(self.rows)),
            "refresh": "10s",
            "schemaVersion": SCHEMA,
            "tags": list(self.tags),
            "templating": {"list": _variables()},
            "time": {"from": "now-30m", "to": "now"},
            "timepicker": {},
            "timezone": "browser",
            "title": self.title,
            "uid": self.uid,
            "version": 1,
            "weekStart": "",
        }


def _laid_out(rows: Sequence[Row]) -> list[Json]:
    found: list[Json] = []
    top = 0
    for row in rows:
        head = {"type": "row", "title": row.title, "collapsed": False, "panels": []}
        found.append({**head, "id": len(found) + 1, "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": top}})
        top, left = top + 1, 0
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                top, left = top + HEIGHT, 0
            place = {"h": HEIGHT, "w": panel.width, "x": left, "y": top}
            found.append({**_panel(panel), "id": len(found) + 1, "gridPos": place})
            left += panel.width
        top += HEIGHT
    return found


def _panel(panel: Panel) -> Json:
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "targets": [_target(panel, number, query) for number, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _OPTIONS[panel.kind],
    }


def _target(panel: Panel, number: int, query: Query) -> Json:
    return {
        "datasource": SOURCE,
        "editorMode": "code",
        "expr": query.expr,
        "format": "heatmap" if panel.kind == "heatmap" else "time_series",
        "instant": False,
        "legendFormat": query.legend,
        "range": True,
        "refId": chr(ord("A") + number),
    }


def _defaults(panel: Panel) -> Json:
    shown: Json = {"color": {"mode": "palette-classic"}, "unit": panel.unit, "min": 0}
    if panel.most is not None:
        shown["max"] = panel.most
    if panel.kind == "timeseries":
        stacking = {"group": "A", "mode": "normal" if panel.stacked else "none"}
        shown["custom"] = {
            "drawStyle": "line",
            "fillOpacity": 30 if panel.stacked else 8,
            "lineWidth": 1,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": stacking,
        }
    return shown


_OPTIONS: dict[str, Json] = {
    "timeseries": {
        "legend": {
            "calcs": ["lastNotNull"],
            "displayMode": "list",
            "placement": "bottom",
            "showLegend": True,
        },
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {
        "colorMode": "value",
        "graphMode": "area",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "textMode": "auto",
    },
    "heatmap": {
        "calculate": False,
        "cellGap": 1,
        "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64, "exponent": 0.5},
        "filterValues": {"le": 1e-9},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "tooltip": {"mode": "single", "yHistogram": True},
        "yAxis": {"axisPlacement": "left"},
    },
}


def _variables() -> list[Json]:
    source: Json = {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "refresh": 1,
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "regex": "",
        "skipUrlSync": False,
    }
    restarts = metric("model_loaded").name
    return [
        source,
        _labels("instance", "Server", f"label_values({restarts}, instance)"),
        _labels("model_name", "Model", f'label_values({restarts}{{instance=~"$instance"}}, model_name)'),
    ]


def _labels(name: str, label: str, query: str) -> Json:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "allValue": ".*",
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        "hide": 0,
        "includeAll": True,
        "multi": True,
        "refresh": 2,
        "regex": "",
        "skipUrlSync": False,
        "sort": 1,
    }


def _others() -> Json:
    return {
        "title": "Turnout",
        "type": "dashboards",
        "tags": ["turnout"],
        "asDropdown": True,
        "icon": "external link",
        "includeVars": True,
        "keepTime": True,
        "targetBlank": False,
        "tooltip": "",
        "url": "",
    }
