"""Counters and gauges of plugins, in the engine's report; a plugin at fault costs its own alone."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping

import pytest
from toy import toy_engine, toy_kv

from turnout.config import EngineConfig
from turnout.core import limits
from turnout.core.interfaces.figures import Figures
from turnout.core.interfaces.kv import KVCache
from turnout.core.registry.hookspecs import Register, hookimpl
from turnout.core.registry.registry import Registry
from turnout.core.types.messages import PluginFigure, Stats
from turnout.plugins.evictions.lru import Lru
from turnout.plugins.kv_backends.paged.backend import Paged
from turnout.plugins.predictors.max_tokens import MaxTokens
from turnout.plugins.proposers.ngram import NGram
from turnout.plugins.schedulers.fcfs import Fcfs
from turnout.runner.assembly import build_engine
from turnout.server.metrics.engine_metrics import Scrape


class Counting(Fcfs):
    """Shows what it is given."""

    def __init__(self, counters: Mapping[str, float] = {}, gauges: Mapping[str, float] = {}) -> None:
        self.shown = Figures(counters, gauges)

    def figures(self) -> Figures:
        return self.shown


class Guessing(MaxTokens):
    def figures(self) -> Figures:
        return Figures(gauges={"mean_error": 1.5})


def figures(policy: Fcfs) -> list[PluginFigure]:
    return toy_engine(policy, toy_kv(8, 4), predictor=Guessing()).stats().figures


def own(found: list[PluginFigure]) -> dict[str, tuple[float, bool]]:
    return {each.name: (each.value, each.counter) for each in found if "Counting" in each.plugin}


def test_counters_and_gauges_are_reported_with_their_plugin() -> None:
    found = figures(Counting({"jumps": 3}, {"queue_age": 0.5}))
    assert own(found) == {"jumps": (3, True), "queue_age": (0.5, False)}
    assert {each.plugin.split()[0] for each in found} == {"scheduling", "length"}
    assert not own(figures(Fcfs()))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("Jumps", 1, "'Jumps' is no name"),
        ("jumps per second", 1, "is no name"),
        ("x" * 65, 1, "is no name"),
        ('a",b="', 1, "is no name"),
        ("jumps", float("nan"), "jumps is nan"),
        ("jumps", "many", "could not convert"),
        ("jumps", float("inf"), "jumps is inf"),
    ],
)
def test_what_no_metric_can_show_is_left_out(
    name: str, value: float, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        found = figures(Counting({"good": 1}, {name: value}))
    assert not own(found) and len(found) == 1, "another plugin's are reported all the same"
    assert said in caplog.text and "its counters and gauges are left out of /metrics" in caplog.text


def test_a_counter_below_zero_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """It made the whole exposition invalid, so that no metric of the server was read."""
    assert not own(figures(Counting({"good": 1, "jumps": -5})))
    assert "the counter jumps is -5.0, but must not be below 0" in caplog.text
    assert own(figures(Counting(gauges={"balance": -5}))) == {"balance": (-5, False)}


def test_there_is_a_limit_to_their_number(caplog: pytest.LogCaptureFixture) -> None:
    many = {f"number_{i}": i for i in range(limits.FIGURES.whole)}
    assert len(own(figures(Counting(many)))) == limits.FIGURES.whole
    assert not own(figures(Counting(many, {"one_more": 1})))
    assert f"a plugin may have {limits.FIGURES.whole}" in caplog.text


def test_a_scrape_has_them_with_labels() -> None:
    engine = toy_engine(Counting({"jumps": 3}, {"age": 2}), toy_kv(8, 4))
    stats: Stats = engine.stats()
    collected = list(Scrape("m", 0, stats, None, 1).collect())
    samples = {
        (sample.name, sample.labels["name"]): sample.value
        for family in collected
        for sample in family.samples
        if "plugin" in sample.labels
    }
    assert samples == {("turnout:plugin_counter_total", "jumps"): 3, ("turnout:plugin_gauge", "age"): 2}


# ------------------------------------------------------------------ plugins that work inside others


class Counted(Lru):
    def figures(self) -> Figures:
        return Figures(gauges={"blocks": 7})


class Drafting(NGram):
    def figures(self) -> Figures:
        return Figures(counters={"looked_up": 2})


class Pages(Paged):
    def figures(self, cache: KVCache) -> Figures:
        return Figures(gauges={"pages": cache.capacity})


@hookimpl
def register_evictions(register: Register) -> None:
    register("counted", Counted)


@hookimpl
def register_proposers(register: Register) -> None:
    register("drafting", Drafting)


@hookimpl
def register_kv_backends(register: Register) -> None:
    register("pages", Pages)


def test_a_whole_engine_shows_what_its_parts_count() -> None:
    config = EngineConfig(
        kv="pages",
        kv_eviction="counted",
        decoding="speculative:proposer=drafting",
        kv_memory="4MiB",
        max_model_len=64,
        device="cpu",
    )
    engine = build_engine(config, registry=Registry.load(extra=[sys.modules[__name__]])).engine
    shown = {each.plugin.split()[0]: (each.name, each.value) for each in engine.stats().figures}
    assert shown["kv_eviction"] == ("blocks", 7)
    assert shown["proposer"] == ("looked_up", 2)
    assert shown["kv"] == ("pages", engine.scheduler.kv.capacity)
