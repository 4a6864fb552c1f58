"""The console's playground: what each request carries, and what is shown of each answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from console_page import tab
from made_up_server import HELD, Event, MadeUpServer, still

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

expect = pytest.importorskip("playwright.sync_api", reason="Playwright is not there: install '.[dev]'").expect

GREETING = "Hello, <b>you</b>."
"""What the made-up server answers to a question of which it knows nothing."""


@pytest.fixture
def server(serve) -> MadeUpServer:
    return serve(still({"at": 1.0, "first": True, "engines": []}))


def playground(open_page, server: MadeUpServer, **given: object) -> Page:
    page = open_page(f"{server.url}#playground", **given)
    expect(page.locator(".column select").first).to_have_value("tiny")
    return page


def send(page: Page, question: str, answer: str) -> None:
    """Sends a question, and waits until the answer is seen."""
    page.locator("#prompt").fill(question)
    page.locator("#prompt").press("Control+Enter")
    expect(log(page)).to_contain_text(answer)


def log(page: Page) -> Locator:
    return page.locator(".log").first


def history(server: MadeUpServer) -> list[tuple[str, str]]:
    """The messages of the latest request."""
    body = [body for what, body in server.changes if what == "chat"][-1]
    return [(message["role"], message["content"]) for message in body["messages"]]


def said(text: str) -> Event:
    return {"delta": {"content": text}}


def test_clear_in_mid_stream_leaves_no_conversation(server, open_page) -> None:
    """The stopped answer was added to the conversation that had been cleared."""
    server.answers["A"] = [said("half an ans"), HELD]
    page = playground(open_page, server)
    send(page, "A", "half an ans")
    page.get_by_role("button", name="Clear").click()
    expect(log(page)).to_be_empty()
    send(page, "B", GREETING)
    assert history(server) == [("user", "B")]


def test_chat_after_a_completion_in_mid_stream_begins_anew(server, open_page) -> None:
    """The completion's text became a turn of the assistant."""
    server.answers["A"] = [{"text": "half a text"}, HELD]
    page = playground(open_page, server)
    page.get_by_role("button", name="Completion").click()
    send(page, "A", "half a text")
    page.get_by_role("button", name="Chat").click()
    send(page, "B", GREETING)
    assert history(server) == [("user", "B")]


def test_an_answer_that_the_next_question_stops_stays_in_its_place(server, open_page) -> None:
    """The next request lacked it, and later ones had it behind their own question."""
    server.answers = {"A": [said("half of A"), HELD], "B": [said("half of B"), HELD]}
    page = playground(open_page, server)
    send(page, "A", "half of A")
    send(page, "B", "half of B")
    assert history(server) == [("user", "A"), ("assistant", "half of A"), ("user", "B")]
    send(page, "C", GREETING)
    assert history(server)[2:] == [("user", "B"), ("assistant", "half of B"), ("user", "C")]
    expect(page.get_by_text("stopped")).to_have_count(2)


def test_a_refused_question_leaves_neither_turns_nor_figures(server, open_page) -> None:
    """It stayed with an empty answer, above the figures of the answer before."""
    server.answers["wrong"] = 400
    page = playground(open_page, server, bears="400")
    send(page, "A", GREETING)
    expect(page.locator(".column .told").first).to_contain_text("TTFT")
    send(page, "wrong", "'wrong' is refused")
    expect(page.locator(".column .told").first).to_have_text("")
    page.locator("#prompt").fill("B")
    page.get_by_role("button", name="Send").click()
    expect(log(page).get_by_text(GREETING)).to_have_count(2)
    assert history(server) == [("user", "A"), ("assistant", GREETING), ("user", "B")]


@pytest.mark.parametrize("tools", ["[{", '{"type": "function"}'])
def test_where_the_tools_are_no_list_nothing_is_sent_and_the_message_stays(
    server, open_page, tools: str
) -> None:
    """The message was lost, and the answer that streamed was stopped."""
    server.answers["A"] = [said("half an ans"), HELD]
    page = playground(open_page, server)
    page.get_by_role("button", name="Two side by side").click()
    send(page, "A", "half an ans")
    second = page.locator(".column").nth(1)
    second.locator("summary").click()
    second.get_by_label("Tools").fill(tools)
    page.locator("#prompt").fill("B")
    page.locator("#prompt").press("Control+Enter")
    expect(page.locator("#notice")).to_contain_text("Tools must be a JSON list")
    expect(page.locator("#prompt")).to_have_value("B")
    expect(page.get_by_text("stopped")).to_have_count(0)
    assert [what for what, _ in server.changes].count("chat") == 2, "of both columns, the first question"
    second.get_by_label("Tools").fill("")
    send(page, "B", GREETING)
    expect(page.locator("#notice")).to_have_text("")


def test_with_probabilities_reasoning_and_answer_are_shown_once(server, open_page) -> None:
    """Tokens are shown where they spell the text that they came with: others may be markers."""

    def scored(delta: Event, *tokens: str) -> Event:
        content = [{"token": token, "logprob": -0.1, "top_logprobs": []} for token in tokens]
        return {"delta": delta, "logprobs": {"content": content}}

    server.answers["A"] = [
        scored({"reasoning_content": "Let me"}, "<think>", "Let", " me"),
        scored({"reasoning_content": " see."}),
        scored({"content": "It is "}, "</think>", "It", " is", " "),
        scored({"content": "four"}, "fo", "ur"),
        scored({"content": "."}),
        scored({}, "<end>"),
    ]
    page = playground(open_page, server)
    page.get_by_label("logprobs").first.check()
    send(page, "A", "It is four.")
    assert page.locator(".turn:not(.user) .said").all_text_contents() == ["Let me see.", "It is four."]
    assert page.locator(".token").all_text_contents() == ["fo", "ur"]


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
def test_two_columns_fit_a_narrow_window(server, open_page, locale: str) -> None:
    page = playground(open_page, server, locale=locale)
    page.set_viewport_size({"width": 390, "height": 800})
    page.locator("#panel-playground .bar button[aria-pressed=false]").last.click()
    for summary in page.locator(".column summary").all():
        summary.click()
    outside = page.evaluate(
        """() => [...document.querySelectorAll(".column")].flatMap((card) => {
            const { left, right } = card.getBoundingClientRect();
            const shown = [...card.querySelectorAll("input, select, textarea, .log")];
            const boxes = shown.map((node) => [node.getBoundingClientRect(), node.outerHTML]);
            const fits = (box) => box.left >= left && box.right <= right;
            return boxes.filter(([box]) => box.width && !fits(box)).map(([, html]) => html);
        })"""
    )
    assert not outside
    widths = page.locator(".column").evaluate_all("cards => cards.map(card => card.offsetWidth)")
    assert min(widths) > 320, "each column has the window's width"
    assert page.evaluate("document.querySelector('#panels').scrollWidth <= innerWidth")


@pytest.mark.parametrize(
    ("locale", "wanted", "refused"),
    [
        ("en-US", 'enter it in the field "API key"', 'refused the key in the field "API key"'),
        ("zh-CN", "请填入“API 密钥”一栏", "拒绝了“API 密钥”一栏中的密钥"),
    ],
)
def test_without_the_api_key_the_page_names_its_field_until_another_panel_is_opened(
    server, open_page, locale: str, wanted: str, refused: str
) -> None:
    """The notice spoke of a header, which readers of the page cannot set, and stayed in all panels."""
    server.api_key = "k"
    page = open_page(f"{server.url}#playground", bears="401", locale=locale)
    notice, key = page.locator("#notice"), page.locator("#api-key")
    expect(notice).to_contain_text(wanted)
    page.locator("#tab-figures").click()
    expect(notice).to_have_text("")
    page.locator("#tab-playground").click()
    expect(notice).to_contain_text(wanted)
    key.fill("guess")
    key.press("Enter")
    expect(notice).to_contain_text(refused)
    key.fill("k")
    key.press("Enter")
    expect(notice).to_have_text("")
    expect(page.locator(".column select").first).to_have_value("tiny")


def test_a_notice_follows_the_language_and_an_answer_names_the_field_of_the_key(server, open_page) -> None:
    server.api_key, server.answers["A"] = "k", 401
    page = open_page(f"{server.url}#playground", bears="401")
    expect(page.locator("#notice")).to_contain_text("This server wants an API key")
    page.locator("#language").select_option("zh")
    expect(page.locator("#notice")).to_contain_text("此服务器需要 API 密钥")
    send(page, "A", "请填入“API 密钥”一栏")
    tab(page, "时间线")
    expect(page.locator("#notice")).to_have_text("")
