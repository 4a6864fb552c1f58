"""The console in Chromium, before a made-up engine: what a reader sees, types and hears of."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any

import pytest
from console_page import rows, tab
from made_up import MadeUp
from made_up_server import Event, MadeUpServer, live, still

if TYPE_CHECKING:
    from playwright.sync_api import Page

expect = pytest.importorskip("playwright.sync_api", reason="Playwright is not there: install '.[dev]'").expect

MARKUP = "<img src=x onerror=alert(1)>"
PANELS = ["Timeline", "Memory", "Decisions", "Policies", "Playground", "Figures"]


def busy(seconds: float = 6.0, **given: Any) -> tuple[MadeUp, Event]:
    """An engine that has run for some seconds, and the event that tells of all of it."""
    engine = MadeUp(**given)
    now = time.time()
    steps = engine.run(now - seconds, seconds)
    engine.arrive(now, client=MARKUP, prompt=100)
    event = engine.event(now, steps)
    event["first"] = True
    event["engines"][0]["policies"] = {"scheduler": "fcfs", "kv": "paged:block_size=16"}
    return engine, event


def painted(page: Page, selector: str) -> int:
    """How many colours a canvas shows."""
    return page.locator(selector).evaluate(
        """canvas => new Set(new Uint32Array(
            canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer)).size"""
    )


def test_every_panel_shows_the_engine_and_markup_is_text(serve, open_page) -> None:
    _, event = busy(20.0, rate=8.0, blocks=300)
    page = open_page(serve(still(event)).url)
    expect(page.locator("#summary")).to_contain_text("fcfs")
    page.wait_for_timeout(100)
    assert painted(page, "canvas.bars") > 6
    table = rows(page)
    assert any(row[1] == MARKUP for row in table)
    assert any(int(row[7]) > 0 for row in table), "some requests were preempted, and the table says so"
    tab(page, "Memory")
    expect(page.locator("#panel-memory")).to_contain_text("One cell is one block of 16 positions")
    assert painted(page, "canvas.pool") > 4
    tab(page, "Decisions")
    expect(page.locator("#panel-decisions")).to_contain_text("its client had the least service")
    tab(page, "Policies")
    expect(page.locator("#panel-policies")).to_contain_text("paged:block_size=16")
    expect(page.locator("#panel-policies")).to_contain_text("least_requests")
    tab(page, "Figures")
    expect(page.locator("canvas.chart").first).to_have_attribute("aria-label", re.compile("now"))
    assert page.locator("img[src=x]").count() == 0
    shown = page.evaluate("document.body.textContent")
    assert not [word for word in ("[object", "false", "undefined", "NaN") if word in shown]


def test_a_wrong_key_is_refused_in_words_and_the_right_one_is_kept_for_the_tab(serve, open_page) -> None:
    _, event = busy()
    server = serve(still(event), key="secret")
    page = open_page(server.url, bears="401")
    page.get_by_label("Admin key").last.fill("guess")
    page.get_by_role("button", name="Open the console").click()
    expect(page.get_by_role("alert")).to_have_text("The server refused this key.")
    page.get_by_label("Admin key").last.fill("secret")
    page.keyboard.press("Enter")
    expect(page.locator("#summary")).to_contain_text("live")
    kept = page.evaluate("[Object.values(sessionStorage), Object.values(localStorage), document.cookie]")
    assert kept == [["secret"], [], ""]
    tab(page, "Playground")
    page.get_by_label("API key").fill("another")
    page.get_by_role("button", name="Forget key").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0
    assert page.locator("#api-key").input_value() == ""


@pytest.mark.slow
def test_it_speaks_the_browsers_language_and_another_when_asked(serve, open_page) -> None:
    _, event = busy()
    page = open_page(serve(still(event)).url, locale="zh-CN")
    expect(page.get_by_role("tab", name="时间线")).to_be_visible()
    assert page.evaluate("document.documentElement.lang") == "zh-Hans"
    page.locator("#language").select_option("en")
    expect(page.get_by_role("tab", name="Timeline")).to_be_visible()
    words = page.evaluate(
        """async () => { const { WORDS } = await import("./console/lib/words.js");
                         return [Object.keys(WORDS.en), Object.keys(WORDS.zh)]; }"""
    )
    assert words[0] == words[1]


@pytest.mark.slow
def test_the_keyboard_reaches_panels_requests_and_steps(serve, open_page) -> None:
    _, event = busy()
    page = open_page(serve(still(event)).url)
    expect(page.locator("#summary")).to_contain_text("live")
    page.locator("canvas.bars").focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".details")).to_contain_text("cmpl-0-0")
    page.keyboard.press("-")
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("button", name="Follow")).to_have_attribute("aria-pressed", "false")
    page.keyboard.press("3")
    steps = page.get_by_role("slider")
    expect(steps).to_have_attribute("aria-valuenow", re.compile(r"\d"))  # the next frame draws it
    last = int(steps.get_attribute("aria-valuenow"))
    steps.focus()
    page.keyboard.press("ArrowLeft")
    expect(steps).to_have_attribute("aria-valuenow", str(last - 1))
    page.locator("#tab-decisions").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Policies")).to_be_focused()


@pytest.mark.slow
def test_a_step_that_goes_on_as_the_one_before_shows_what_that_one_granted(serve, open_page) -> None:
    _, event = busy()
    told = event["engines"][0]
    last = told["steps"][-1] | {"grants": [["cmpl-a", 1, "decode", 20, 20], ["cmpl-b", 1, "decode", 7, 7]]}
    number = last["number"]
    plain = {"started": last["ended"], "ended": last["ended"] + 0.02, "tokens": 2, "again": True}
    told["steps"] = [last, *(plain | {"number": number + ahead} for ahead in (1, 2, 5))]
    page = open_page(serve(still(event)).url)
    tab(page, "Decisions")
    panel = page.locator("#panel-decisions")
    expect(panel).to_contain_text("Steps came too fast")  # those between were not told of
    panel.get_by_role("button", name="Back").click()
    expect(panel.locator("strong")).to_contain_text(f"{number + 2} ·")
    expect(panel.locator(".grant")).to_have_count(2)
    expect(panel).to_contain_text("cmpl-b +1 decode")
    assert not last["order"] or last["order"][0][-5:] in panel.inner_text()


def test_figures_of_the_hour_before_the_page_was_opened_are_shown(serve, open_page) -> None:
    _, event = busy()
    began = event["at"] - 3600
    points = [
        {
            "at": began + 15 * number,
            "output_tokens": 15 * 700,
            "preemptions": 2,
            "running": 3,
            "ttft": 0.25,
            "ttft95": 4.0,
        }
        for number in range(200)
    ]
    server = serve(still(event))
    server.history["engines"] = [{"model": "tiny", "arm": "", "replica": "0", "points": points}]
    page = open_page(f"{server.url}#figures")
    page.get_by_label("Window").last.select_option("60")
    shown = page.locator("canvas.chart")
    expect(shown.nth(0)).to_have_attribute("aria-label", re.compile(r"Throughput: .* 700 at most"))
    expect(shown.nth(3)).to_have_attribute("aria-label", re.compile(r"TTFT: .* 4.00 s at most"))
    expect(shown.nth(5)).to_have_attribute("aria-label", re.compile(r"preemptions: .* 8.00 at most"))


@pytest.mark.slow
def test_first_tokens_are_figures_when_they_come_and_times_of_tokens_when_a_request_has_ended(
    serve, open_page
) -> None:
    _, event = busy()
    at = event["at"] = time.time() // 10 * 10 + 2  # what stands above is of ten seconds, from full ones on
    told = event["engines"][0]
    told |= {"requests": [], "spans": []}
    asked = {"prompt_tokens": 9, "max_tokens": 9, "arrival": at, "state": "decode"}
    begun = {**told, "requests": [asked | {"id": name} for name in ("a", "b")]}
    begun["spans"] = [["a", "decode", at + 0.25, None], ["b", "decode", at + 0.75, None]]
    ended = asked | {"id": "a", "state": "ended", "finish_reason": "length", "output_tokens": 11}
    done = {**told, "requests": [ended], "spans": [["a", "decode", at + 0.25, at + 1.25]]}
    page = open_page(serve(still(event, {"at": at + 1, "engines": [begun]})).url)
    expect(page.locator("#summary")).to_contain_text("TTFT p50500 msTPOT p50–")
    page = open_page(
        serve(still(event, *({"at": at + n, "engines": [e]} for n, e in ((1, begun), (2, done))))).url
    )
    expect(page.locator("#summary")).to_contain_text("TTFT p50500 msTPOT p50100 ms")


@pytest.mark.slow
def test_a_request_of_several_choices_is_a_bar_of_several_stripes(serve, open_page) -> None:
    _, event = busy(1.0)
    at, engine = event["at"], event["engines"][0]
    one = {"id": "a", "prompt_tokens": 9, "max_tokens": 9, "n": 4, "arrival": at - 20, "state": "decode"}
    spans = [["a", "decode", at - 20, None]]
    engine |= {"requests": [one], "spans": spans, "breadths": [["a", at - 20, 4], ["a", at - 10, 1]]}
    page = open_page(serve(still(event)).url)
    bars = page.locator("canvas.bars")
    bars.press("ArrowDown")
    expect(page.locator(".details")).to_contain_text("1 of 4")
    inked = """canvas => {
        const copy = document.createElement("canvas"), scale = devicePixelRatio, ink = [];
        [copy.width, copy.height] = [canvas.width, canvas.height];
        const ctx = copy.getContext("2d", { willReadFrequently: true });
        ctx.drawImage(canvas, 0, 0);
        const blue = getComputedStyle(document.documentElement).getPropertyValue("--decode").trim();
        const wanted = [1, 3, 5].map((at) => parseInt(blue.slice(at, at + 2), 16));
        for (const x of [0.45, 0.9]) {
            const { data } = ctx.getImageData(canvas.width * x, 22 * scale, 1, 24 * scale);
            let count = 0;
            const like = (at) => wanted.every((value, part) => Math.abs(data[at + part] - value) < 12);
            for (let at = 0; at < data.length; at += 4) count += like(at);
            ink.push(count);
        }
        return ink;
    }"""
    four, one_left = bars.evaluate(inked)
    assert four >= 3 * one_left > 0


@pytest.mark.slow
def test_a_thousand_live_requests_take_less_than_half_a_core_to_draw(serve, open_page) -> None:
    """By the processor's time that the page's thread takes: frames say more of what else the machine does."""
    engine, _ = busy(2.0)
    now = time.time()
    for number in range(1000):
        engine.arrive(now - number / 100)
    page = open_page(serve(live(engine, before=2.0)).url)
    expect(page.locator("#panel-timeline .told")).to_contain_text("live")
    devtools = page.context.new_cdp_session(page)
    devtools.send("Performance.enable", {"timeDomain": "threadTicks"})

    def taken() -> float:
        found = devtools.send("Performance.getMetrics")["metrics"]
        return next(metric["value"] for metric in found if metric["name"] == "TaskDuration")

    for name in PANELS:
        tab(page, name)
        page.wait_for_timeout(300)
        before, began = taken(), time.monotonic()
        page.wait_for_timeout(3000)
        share = (taken() - before) / (time.monotonic() - began)
        print(f"{name}: {share:.1%} of a core")
        assert share < 0.5, name


@pytest.mark.slow
def test_it_comes_back_when_the_server_does(open_page) -> None:
    _, event = busy()
    server = MadeUpServer(still(event))
    with server.running():
        page = open_page(server.url, bears="ERR_")
        expect(page.locator("#summary")).to_contain_text("live")
    expect(page.locator("#notice")).to_contain_text("connection lost")
    with server.running():
        expect(page.locator("#summary")).to_contain_text("live")
        expect(page.locator("#notice")).to_have_text("")


@pytest.mark.slow
def test_of_a_server_that_was_replaced_nothing_stays_live(open_page) -> None:
    """Although the new one is idle: it tells of itself once, before it has heard of any step."""
    _, event = busy(20.0)
    server = MadeUpServer(still(event))
    event["engines"].append({**event["engines"][0], "replica": "1", "requests": [], "spans": []})
    with server.running():
        page = open_page(server.url, bears="ERR_")
        expect(page.locator("#panel-timeline .told")).not_to_contain_text(" 0 live")
    engines = [{"model": "tiny", "replica": replica, "stats": {"steps": 0}} for replica in ("0", "7")]
    server.feed = still({"at": event["at"] + 1, "first": True, "engines": engines})
    with server.running():
        expect(page.locator("#panel-timeline .told")).to_contain_text(" 0 live")
        expect(page.locator("#summary")).to_contain_text("running0")
        tab(page, "Memory")
        expect(page.locator("#panel-memory select")).to_have_text("07")
        expect(page.locator("#panel-memory canvas.pool")).to_be_hidden()


@pytest.mark.slow
def test_a_scheduler_is_changed_and_a_refusal_is_shown(serve, open_page) -> None:
    _, event = busy()
    server = serve(still(event))
    page = open_page(f"{server.url}#policies", bears="400")
    page.locator("#scheduler-name").fill("sjf")
    page.locator("#scheduler-options").fill("predictor=length\nhorizon=5")
    page.get_by_role("button", name="Apply").click()
    expect(page.locator("#panel-policies")).to_contain_text("The scheduler is now sjf.")
    assert ("scheduler", {"name": "sjf", "options": {"predictor": "length", "horizon": 5}}) in server.changes
    page.locator("#scheduler-name").fill("none-such")
    page.get_by_role("button", name="Apply").click()
    expect(page.locator("#notice")).to_have_text("there is no scheduler 'none-such'")


@pytest.mark.slow
def test_an_arm_is_promoted_and_a_replica_drained(serve, open_page) -> None:
    _, event = busy()
    arm = {"changes": {}, "share": 0.5, "state": "serving", "reason": None, "restarts": 0}
    row = {"metric": "mean_ttft", "unit": "ms", "base": 812.0, "other": 640.0, "verdict": "better"}
    comparison = {
        "blocks": 12,
        "findings": [],
        "differences": {"fast": [{**row, "change": -0.21, "low": -0.3, "high": -0.11}]},
    }
    arms = {"arms": [{**arm, "name": "base"}, {**arm, "name": "fast"}], "comparison": comparison}
    server = serve(still({**event, "arms": arms}))
    server.arms = arms
    page = open_page(f"{server.url}#policies")
    page.on("dialog", lambda dialog: dialog.accept())
    expect(page.locator(".verdicts")).to_contain_text("-21% (-30% … -11%)")
    page.locator("tr[data-arm=fast]").get_by_role("button", name="Promote").click()
    expect(page.locator("tr[data-arm=base]")).to_contain_text("stopped")
    page.get_by_role("button", name="Drain").click()
    expect(page.locator("#notice")).to_have_text("")
    assert ("ab", {"action": "promote", "arm": "fast"}) in server.changes
    assert ("replicas", {"action": "drain", "replica": "0"}) in server.changes


@pytest.mark.slow
def test_the_playground_streams_two_columns_with_probabilities(serve, open_page) -> None:
    _, event = busy()
    server = serve(still(event))
    page = open_page(f"{server.url}#playground")
    page.get_by_role("button", name="Two side by side").click()
    second = page.locator(".column").nth(1)
    expect(second.get_by_label("Model")).to_have_value("tiny")
    second.get_by_label("Model").select_option("other")
    second.get_by_label("logprobs").check()
    page.locator("#prompt").fill("Say hello")
    page.keyboard.press("Control+Enter")
    for column in (page.locator(".column").nth(0), second):
        expect(column.locator(".log")).to_contain_text("Hello, <b>you</b>.")
        expect(column.locator(".told")).to_contain_text("TTFT")
    second.locator(".token").first.hover()
    expect(page.get_by_role("tooltip")).to_contain_text("90%")
    asked = [body for what, body in server.changes if what == "chat"]
    assert sorted(body["model"] for body in asked) == ["other", "tiny"]


@pytest.mark.slow
def test_a_preempted_request_is_seen_so_and_one_whose_engine_died_is_seen_to_go_on(serve, open_page) -> None:
    _, event = busy()
    at = event["at"]
    one = {"id": "a", "prompt_tokens": 9, "max_tokens": 9, "arrival": at - 5, "state": "preempted"}
    spans = [["a", "decode", at - 4, at - 2], ["a", "preempted", at - 2, None]]
    engine = event["engines"][0]
    before = {**event, "engines": [{**engine, "requests": [{**one, "preemptions": 1}], "spans": spans}]}
    again = {**one, "state": "decode", "resumed": True, "moved_from": "tiny/base/0"}
    after = {"model": "tiny", "replica": "1", "name": "tiny/base/1", "began": True, "state": "serving"}
    after |= {"requests": [again], "spans": [["a", "decode", at + 1, None]]}
    page = open_page(serve(still(before)).url)
    assert [row[2] for row in rows(page)] == ["preempted"]
    page = open_page(serve(still(before, {"at": at + 1, "engines": [after]})).url)
    assert [row[2] for row in rows(page)] == ["decode, resumed after a crash, moved to another engine"]


@pytest.mark.slow
def test_a_recording_is_shown_as_of_any_moment(serve, open_page) -> None:
    engine = MadeUp(rate=4.0)
    events = [engine.event(float(at), engine.run(float(at) - 1, 1.0), first=at == 1) for at in range(1, 21)]
    server = serve(still(), recording={"turnout_trace": 1, "events": events})
    page = open_page(f"{server.url}?trace=trace.json")
    expect(page.locator("#summary")).to_contain_text("recording")
    moment = page.get_by_label("Moment of the run")
    expect(moment).to_have_attribute("aria-valuetext", "20.00 s")
    all_of_it = len(rows(page))
    moment.focus()
    page.keyboard.press("Home")
    expect(moment).to_have_attribute("aria-valuetext", "1.00 s")
    assert len(rows(page)) < all_of_it


@pytest.mark.slow
@pytest.mark.parametrize("text", ["{", json.dumps({"events": []})])
def test_a_file_that_is_no_recording_is_refused_in_words(serve, open_page, text: str) -> None:
    _, event = busy()
    page = open_page(serve(still(event)).url)
    file = {"name": "x.json", "mimeType": "application/json", "buffer": text.encode()}
    page.locator("input[type=file]").set_input_files([file])
    expect(page.locator("#notice")).to_contain_text("turnout simulate --trace")


@pytest.mark.slow
def test_hours_of_events_leave_the_heap_as_it_was(serve, open_page) -> None:
    """The feed at many times its pace, until all that the page keeps is full: then it must stay as it is."""
    page = open_page(serve(still(busy()[1])).url)
    expect(page.locator("#summary")).to_contain_text("live")
    events: list[Event] = []
    engine, at = MadeUp(seed=2, rate=8.0, slots=64, blocks=4000), time.time()
    for _ in range(12):
        at += 1.0
        events.append(engine.event(at, engine.run(at - 1.0, 1.0), first=not events))
    page.evaluate("events => { globalThis.told = events; globalThis.round = 0; }", events)
    play = """async (rounds) => {
        const { Store } = await import("./console/data/store.js");
        const store = (globalThis.kept ??= new Store());
        for (const end = globalThis.round + rounds; globalThis.round < end; globalThis.round += 1) {
            for (const event of globalThis.told) {
                const text = JSON.stringify(event).replaceAll("cmpl-0-", `cmpl-${globalThis.round}-`);
                const later = JSON.parse(text);
                later.at += globalThis.round * 120;
                store.apply(later);
            }
            await new Promise((done) => setTimeout(done));
        }
        for (let turn = 0; turn < 4; turn += 1) { gc(); await new Promise((done) => setTimeout(done, 50)); }
        return performance.memory.usedJSHeapSize;
    }"""
    full, later = page.evaluate(play, 60), page.evaluate(play, 30)
    print(f"{full / 1e6:.1f} MB after two hours, {later / 1e6:.1f} MB an hour later")
    assert later < full * 1.1


@pytest.mark.slow
def test_a_request_preempted_for_ever_and_engines_that_are_gone_take_a_bounded_room(serve, open_page) -> None:
    page = open_page(serve(still(busy()[1])).url)
    found = page.evaluate(
        """async () => {
            const { Store } = await import("./console/data/store.js");
            const store = new Store();
            const tell = (at, news) => store.apply({ at, engines: [{ model: "tiny", ...news }] });
            const request = { id: "a", n: 2, prompt_tokens: 9, max_tokens: 9, arrival: 1, state: "decode" };
            tell(1, { replica: "0", requests: [request], spans: [["a", "decode", 1, 2]] });
            for (let at = 2; at < 2000; at += 2) {
                const spans = [["a", "preempted", at, at + 1], ["a", "decode", at + 1, at + 2]];
                tell(at, { replica: "0", spans, breadths: [["a", at, 1 + at % 2]] });
            }
            const { spans, breadths } = store.requests.get("a");
            const stats = { steps: 1, running: 1 };
            const kv = { runs: [["free", 100]] };
            tell(2001, { replica: "1", stats, kv, steps: [{ number: 1, tokens: 1 }] });
            const gone = store.engines.get(JSON.stringify(["tiny", "", "1"]));
            const ended = { ...request, id: "b", state: "ended", finish_reason: "length" };
            tell(2002, { replica: "1", state: "gone", stats, kv, requests: [ended] });
            return {
                spans: spans.length, first: spans[0].start, last: spans.at(-1).end, breadths: breadths.length,
                engines: store.engines.size, left: gone.cells.length + gone.steps.length, series: gone.series,
            };
        }"""
    )
    assert found == {
        "spans": 200,
        "first": 1,
        "last": 2000,
        "breadths": 64,
        "engines": 1,
        "left": 0,
        "series": None,
    }
