"""The report: one page that needs nothing but itself."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import unquote
from xml.etree import ElementTree

import msgspec
import pytest
from compare_runs import H100, spec

from turnout.core.errors import ConfigError
from turnout.core.types.live.event import TraceFile
from turnout.lab.compare.comparison import Comparison
from turnout.lab.compare.experiment import Experiment
from turnout.lab.compare.report import svg
from turnout.lab.compare.report.as_json import as_json
from turnout.lab.compare.report.report import as_html
from turnout.lab.compare.runs.simulated import SimulatedRuns

WORKLOAD = "gamma:rate=40,requests=40,prompt=100,output=lognormal:mean=40,clients=3"


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    given = spec(
        "base:max-num-seqs=8",
        "长作业优先:max-num-seqs=4,scheduler=ljf",
        workload=WORKLOAD,
        repeats=3,
        simulated="h100-7b",
    )
    experiment = Experiment(given, SimulatedRuns(given, H100))
    experiment.make(lambda turn: lambda done, total: None)
    return experiment.comparison()


@pytest.fixture(scope="module")
def page(comparison: Comparison) -> str:
    return as_html(comparison)


def test_it_asks_the_network_for_nothing(page: str) -> None:
    links = re.findall(r"""(?:src|href)=["']([^"'#]+)|url\((?!#)([^)]+)\)|@import""", page)
    assert links == [] and "<script" not in page


def test_its_plots_are_there_and_are_xml(page: str) -> None:
    plots = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(plots) == 5  # changes, distributions, timelines, throughput, clients
    for plot in plots:
        ElementTree.fromstring(plot)


def test_labels_of_any_script_stay_text(page: str) -> None:
    for plot in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        assert re.search(r"<text[^>]*>[^<]*长作业优先", plot)


def test_ids_of_the_plots_do_not_clash(page: str) -> None:
    """A clip path of one figure must not cut another's."""
    ids = [
        set(re.findall(r'clipPath id="([^"]+)"', plot)) for plot in re.findall(r"<svg.*?</svg>", page, re.S)
    ]
    assert sum(map(len, ids)) == len(set.union(*ids)) > 0


def test_it_says_what_the_table_says(page: str, comparison: Comparison) -> None:
    declared = [row for row in comparison.rows["长作业优先"] if row.direction]
    assert declared and all(row.verdict in page for row in declared)


def test_what_users_named_is_escaped() -> None:
    given = spec("a", "b", workload="<script>.jsonl", repeats=1)
    from compare_runs import run

    from turnout.lab.compare.comparison import compare

    page = as_html(compare(given, [run("a"), run("b")]))
    assert "<script>.jsonl" not in page and "&lt;script&gt;.jsonl" in page


def test_the_same_comparison_makes_the_same_page(page: str, comparison: Comparison) -> None:
    assert as_html(comparison) == page


def test_without_the_plotting_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(svg, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"turnout\[lab\]"):
        svg.check_plots()


def test_the_json_has_all_that_was_measured(comparison: Comparison, tmp_path: Path) -> None:
    document = json.loads(as_json(comparison))
    assert [arm["name"] for arm in document["arms"]] == ["base", "长作业优先"]
    assert len(document["runs"]) == 6 and len(document["runs"][0]["requests"]) == 40
    row = document["differences"]["长作业优先"][0]
    assert {"metric", "base", "other", "change", "low", "high", "declared", "verdict"} <= row.keys()


def test_it_links_to_a_trace_of_each_run(tmp_path: Path) -> None:
    folder = tmp_path / "kept here"
    folder.mkdir()
    given = spec("base", "长作业:scheduler=ljf", workload=WORKLOAD, repeats=2, traces=folder)
    experiment = Experiment(given, SimulatedRuns(given, H100))
    experiment.make(lambda turn: lambda done, total: None)
    (tmp_path / "pages").mkdir()
    page = as_html(experiment.comparison(), tmp_path / "pages")
    links = [unquote(link) for link in re.findall(r'<a href="([^"]+)"', page)]
    assert len(links) == 4 == len(list(folder.iterdir()))
    assert [link.removeprefix("../kept here/") for link in links] == [
        *("base-1.json", "长作业-1.json", "base-2.json", "长作业-2.json")
    ]
    for link, seen in zip(links, ("fcfs", "ljf") * 2, strict=True):
        events = msgspec.json.decode((tmp_path / "pages" / link).read_bytes(), type=TraceFile).events
        engines = [engine for event in events for engine in event.engines]
        assert events[0].first and {engine.scheduler for engine in engines} == {seen}
        told = [request for engine in engines for request in engine.requests if request.state == "ended"]
        assert len({request.id for request in told}) == 40


def test_a_page_without_traces_speaks_of_none(page: str) -> None:
    assert "turnout view" not in page and "<a " not in page
