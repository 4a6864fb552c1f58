"""``/openapi.json`` describes every path by the models that the server validates with; ``/docs`` shows it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from running_server import RunningServer, Start

from turnout.core.types.messages import SchedulerState
from turnout.server.app import ROUTES
from turnout.server.http.openapi.document import document, endpoints
from turnout.server.http.openapi.operation import operation_of
from turnout.server.http.openapi.page import told
from turnout.server.protocol.chat import ChatRequest


@pytest.fixture(scope="module")
def api() -> Any:
    return document(endpoints(ROUTES))


def test_every_route_is_described(api: Any) -> None:
    served = {(re.sub(r":\w+}", "}", route.path), *(route.methods - {"HEAD"})) for route in ROUTES}
    assert served == {(path, method.upper()) for path in api["paths"] for method in api["paths"][path]}
    names = [each["operationId"] for methods in api["paths"].values() for each in methods.values()]
    assert len(set(names)) == len(names)


def test_a_handler_without_a_description_is_an_error() -> None:
    with pytest.raises(KeyError):
        operation_of(test_every_route_is_described)


def refs(schema: Any) -> list[str]:
    if isinstance(schema, dict):
        own = [schema["$ref"]] if isinstance(schema.get("$ref"), str) else []
        return own + [ref for value in schema.values() for ref in refs(value)]
    return [ref for item in schema for ref in refs(item)] if isinstance(schema, list) else []


def test_every_reference_leads_to_a_schema(api: Any) -> None:
    named = {f"#/components/schemas/{name}" for name in api["components"]["schemas"]}
    assert set(refs(api)) == set(refs(api)) & named and len(named) > 60


def test_a_request_is_described_by_its_model(api: Any) -> None:
    chat = api["paths"]["/v1/chat/completions"]["post"]
    assert chat["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith("/ChatRequest")
    schema = api["components"]["schemas"]["ChatRequest"]
    assert schema["properties"].keys() == ChatRequest.model_fields.keys()
    assert schema["properties"]["temperature"]["description"] == "0 always takes the most likely token."
    assert "](" not in str([its.get("description") for its in schema["properties"].values()])
    assert {"type": "string"} in schema["properties"]["stop"]["anyOf"]


def test_bounds_that_are_checked_are_told(api: Any) -> None:
    """`limit` of files was told as 1 to 100, and 10,000 are taken."""

    def parameter(path: str, name: str) -> Any:
        found = {each["name"]: each for each in api["paths"][path]["get"]["parameters"]}
        return found[name]["schema"], found[name]["description"]

    files = {"type": "integer", "minimum": 1, "maximum": 10_000, "default": 10_000}
    said = "Most items of the page, from 1 to 10,000; 10,000 unless given."
    assert parameter("/v1/files", "limit") == (files, said)
    batches, said = parameter("/v1/batches", "limit")
    assert batches == {"type": "integer", "minimum": 1, "maximum": 100, "default": 20} and "100; 20" in said
    seconds, said = parameter("/admin/trace", "seconds")
    assert seconds == {"type": "number", "minimum": 0.5, "maximum": 60, "default": 5} and "0.5 to 60" in said
    chat = api["components"]["schemas"]["ChatRequest"]["properties"]
    assert [(chat[name]["minimum"], chat[name]["maximum"]) for name in ("n", "best_of")] == [(1, 128)] * 2
    assert chat["messages"]["minItems"] == 1


def test_a_field_that_need_not_be_given_may_be_null(api: Any) -> None:
    """The server takes null for not given, which the schema of `/api/embeddings` and others denied."""
    prompt = api["components"]["schemas"]["OllamaEmbeddings"]["properties"]["prompt"]
    assert prompt["anyOf"] == [{"type": "string"}, {"type": "null"}] and prompt["default"] == ""
    chat = api["components"]["schemas"]["ChatRequest"]
    for name, schema in chat["properties"].items():
        nullable = {"type": "null"} in schema.get("anyOf", []) or not {
            "anyOf",
            "type",
            "$ref",
        } & schema.keys()
        assert nullable == (name not in chat["required"]), name


def test_a_message_of_the_engine_is_described_as_clients_see_it(api: Any) -> None:
    assert api["components"]["schemas"]["SchedulerState"]["properties"].keys() == set(
        SchedulerState.__struct_fields__
    )


def test_answers_have_their_statuses_and_forms(api: Any) -> None:
    answers = api["paths"]["/v1/chat/completions"]["post"]["responses"]
    assert {"200", "400", "401", "403", "404", "408", "413", "415", "429", "431", "500", "503"} == set(
        answers
    )
    assert set(answers["200"]["content"]) == {"application/json", "text/event-stream"}

    def error(path: str, method: str) -> str:
        content = api["paths"][path][method]["responses"]["400"]["content"]["application/json"]
        return str(content["schema"]["$ref"]).rpartition("/")[2]

    assert error("/v1/chat/completions", "post") == "ErrorBody"
    assert error("/v1/messages", "post") == "AnthropicError" and error("/api/chat", "post") == "OllamaError"


def test_both_are_served_without_a_key(start: Start) -> None:
    server = start(api_key="secret")
    served = server.http.get("/openapi.json")
    assert served.status_code == 200 and served.json()["openapi"] == "3.1.0"
    assert server.http.get("/docs").status_code == 200 and server.http.get("/v1/models").status_code == 401


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.addresses: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        its = dict(attrs)
        self.tags.add(tag)
        self.ids.add(its.get("id") or "")
        self.links.add(its.get("href") or "")
        self.addresses.add(its.get("src") or "")


def test_the_page_needs_nothing_from_elsewhere(server: RunningServer, api: Any) -> None:
    answer = server.http.get("/docs")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert answer.headers["content-type"].startswith("text/html")
    page = Page()
    page.feed(answer.text)
    assert not page.tags & {"script", "link", "img", "iframe", "form"} and page.addresses == {""}
    assert all(not link or link.startswith("#") or link == "openapi.json" for link in page.links)
    assert {link[1:] for link in page.links if link.startswith("#")} <= page.ids
    assert api["components"]["schemas"].keys() <= page.ids


def test_descriptions_are_escaped() -> None:
    assert told("a <b> `<i>`") == "a &lt;b&gt; <code>&lt;i&gt;</code>"
