"""What `turnout top` makes of the events of a server."""

from __future__ import annotations

import pytest
from live_news import engine, event, request, said, stats

from turnout.cli.top.rows import SORTS, engine_figures, requests_shown
from turnout.cli.top.watched import Watched, percentiles
from turnout.core.types.live.news import LiveKV


def of(watched: Watched, sort: str = "state", chosen: str = "") -> list[str]:
    return [row["id"] for row in requests_shown(watched, watched.at, sort, chosen)]


def test_rates_are_those_of_the_last_seconds() -> None:
    watched = Watched()
    watched.hear(event(100.0, engine(stats=stats(10, output_tokens=1000)), first=True))
    (one,) = watched.engines.values()
    assert one.rate("output_tokens", 100.0) is None, "one value tells no rate"
    watched.hear(event(102.0, engine(stats=stats(30, output_tokens=1100))))
    assert one.rate("output_tokens", 102.0) == pytest.approx(50)
    assert one.rate("steps", 102.0) == pytest.approx(10)
    assert one.rate("output_tokens", 104.0) == pytest.approx(25), "nothing has come since"
    assert one.rate("output_tokens", 120.0) == 0
    watched.hear(event(121.0, engine(stats=stats(5, output_tokens=9), began=True)))
    assert one.rate("output_tokens", 121.0) is None, "the counters of another engine"
    assert one.kv_use == pytest.approx(0.6)


def test_requests_come_go_on_and_end() -> None:
    watched = Watched()
    new = [request("a", "waiting"), request("b", "prefill", client="bob", prompt_tokens=80)]
    step = said(order=["a"], why={"a": "place 1 of 1"})
    watched.hear(event(100.0, engine(requests=new, steps=[step]), first=True))
    rows = {row["id"]: row for row in requests_shown(watched, 100.0, "state", "")}
    assert rows["a"]["place"] == 1 and rows["a"]["why"] == "place 1 of 1" and rows["a"]["age"] == 5
    assert rows["b"]["place"] is None and rows["b"]["ttft"] is None
    spans = [("b", "decode", 101.0, None)]
    watched.hear(event(101.0, engine(spans=spans, progress=[("b", "decode", 81, 2, 1)])))
    (row,) = requests_shown(watched, 101.0, "state", "BOB")
    assert (row["state"], row["output_tokens"], row["preemptions"]) == ("decode", 2, 1)
    assert row["ttft"] == pytest.approx(6)
    ended = request("b", "ended", output_tokens=11, finish_reason="length")
    watched.hear(event(103.0, engine(requests=[ended])))
    assert of(watched) == ["a"]
    (one,) = watched.engines.values()
    figures = engine_figures(watched, one, 103.0)
    assert figures["ttft_p50"] == pytest.approx(6) and figures["tpot_p50"] == pytest.approx(0.2)
    assert figures["states"] == {"waiting": 1}
    watched.hear(event(200.0, engine()))
    assert engine_figures(watched, one, 200.0)["ttft_p50"] is None, "that was long ago"


def test_a_request_that_moves_is_shown_once_and_a_replica_that_is_gone_not_at_all() -> None:
    watched = Watched()
    watched.hear(event(100.0, engine("0", requests=[request("a"), request("b")]), engine("1"), first=True))
    moved = request("a", "ended", finish_reason="moved")
    arrived = request("a", "waiting", resumed=True, moved_from="m/0")
    watched.hear(event(101.0, engine("0", requests=[moved]), engine("1", requests=[arrived])))
    assert of(watched) == ["b", "a"] and watched.requests["a"].engine.name == "m/1"
    watched.hear(event(102.0, engine("0", state="gone")))
    assert [one.name for one in watched.engines.values()] == ["m/1"]
    watched.hear(event(106.0, engine("1")))
    assert of(watched) == ["a"], "b was not told of again"


def test_after_a_new_beginning_what_is_not_told_again_is_dropped() -> None:
    """Another server may answer at the address, with fewer engines."""
    watched = Watched()
    watched.hear(event(100.0, engine("0", requests=[request("a"), request("b")]), engine("1"), first=True))
    watched.hear(event(101.0, first=True))
    watched.hear(event(101.1, engine("0", requests=[request("b")])))
    assert sorted(of(watched)) == ["a", "b"], "a large state comes in several events"
    watched.hear(event(105.0, engine("0")))
    assert of(watched) == ["b"] and [one.name for one in watched.engines.values()] == ["m/0"]


def test_of_a_server_that_was_replaced_nothing_stays_although_the_new_one_says_nothing_more() -> None:
    watched = Watched()
    told = engine("0", stats=stats(9, running=2), requests=[request("a")])
    watched.hear(event(100.0, told, engine("1"), first=True))
    watched.hear(event(101.0, engine("0", stats=stats(0)), first=True))
    (one, _) = watched.engines.values()
    assert one.stats.running == 0 and one.kv_use is None and of(watched) == ["a"]
    watched.settle(104.5)
    assert not watched.requests and [one.name for one in watched.engines.values()] == ["m/0"]


def test_an_engine_that_began_again_keeps_only_what_it_tells() -> None:
    watched = Watched()
    watched.hear(event(100.0, engine(requests=[request("a"), request("b")]), first=True))
    watched.hear(event(101.0, engine(began=True, requests=[request("a", "waiting", resumed=True)])))
    watched.hear(event(105.0, engine()))
    assert of(watched) == ["a"]


def test_an_engine_shows_no_figures_of_the_one_that_died_before_it() -> None:
    """Previously, RUN and KV stayed those of the dead engine until the new one had computed a step."""
    watched = Watched()
    watched.hear(
        event(
            100.0,
            engine(stats=stats(9, running=4), kv=LiveKV(unit=16, capacity=1000, free=400, held=600)),
            first=True,
        )
    )
    (one,) = watched.engines.values()
    assert one.stats.running == 4 and one.kv_use == pytest.approx(0.6) and one.kv is not None
    watched.hear(event(101.0, engine(state="restarting", stats=stats(9, running=4))))
    assert one.stats.running == 0 and one.kv_use is None and one.kv is None
    watched.hear(event(101.2, engine(state="restarting", stats=stats(9, running=4))))
    assert one.stats.running == 0, "they are told again as long as no other engine has begun"
    watched.hear(event(109.0, engine(began=True)))
    assert one.stats.running == 0 and one.kv_use is None
    watched.hear(event(110.0, engine(stats=stats(1, running=1))))
    assert one.stats.running == 1 and one.rate("steps", 110.0) is None


def test_an_engine_that_is_replaced_without_a_word_shows_no_figures_of_the_one_before() -> None:
    watched = Watched()
    watched.hear(event(100.0, engine(stats=stats(9, running=4)), first=True))
    watched.hear(event(101.0, engine(began=True)))
    (one,) = watched.engines.values()
    assert one.stats.running == 0 and one.kv_use is None


def test_order_and_choice_of_requests() -> None:
    watched = Watched()
    requests = [
        request("a", "waiting", 90.0, client="zoe"),
        request("b", "decode", 99.0, output_tokens=9, preemptions=2),
        request("c", "decode", 95.0, output_tokens=30, prompt_tokens=900),
        request("d", "waiting", 91.0, client="bob"),
    ]
    watched.hear(event(100.0, engine(requests=requests, steps=[said(order=["d", "a"])]), first=True))
    assert of(watched) == ["c", "b", "d", "a"], "those that run, then the queue as the policy has it"
    assert of(watched, "age") == ["a", "d", "c", "b"]
    assert of(watched, "tokens")[0] == "c" == of(watched, "prompt")[0]
    assert of(watched, "preemptions")[0] == "b" and of(watched, "client")[-1] == "a"
    assert len(SORTS) == 6
    assert of(watched, chosen="WAIT") == ["d", "a"] and not of(watched, chosen="nobody")


def test_percentiles() -> None:
    assert percentiles([]) is None
    assert percentiles([(0, 2.0)]) == (2.0, 2.0)
    assert percentiles([(0, float(value)) for value in range(101)]) == pytest.approx((50, 95))
