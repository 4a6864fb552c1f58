"""Over HTTP: every way to ask for a form, what is refused, and what it goes together with."""

from __future__ import annotations

import json
import re
from typing import Any

import openai
import pytest
from jsonschema import validate
from pydantic import BaseModel, Field
from running_server import RunningServer, eventually

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "名": {"type": "string", "maxLength": 6}},
    "required": ["ok", "名"],
    "additionalProperties": False,
}
DIGITS = {"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 2, "maxItems": 2}


def asking(path: str, **body: Any) -> dict[str, Any]:
    said: dict[str, Any] = (
        {"messages": [{"role": "user", "content": "hi"}]} if path == CHAT else {"prompt": "hi"}
    )
    return {**said, "max_tokens": 200, "seed": 1, **body}


def text_of(answer: dict[str, Any], index: int = 0) -> str:
    choice = answer["choices"][index]
    return choice["message"]["content"] if "message" in choice else choice["text"]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(
    "form",
    [
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "it", "schema": SCHEMA, "strict": True},
            }
        },
        {"response_format": {"type": "json_schema", "json_schema": {"name": "it", "schema": SCHEMA}}},
        {"response_format": {"type": "json_object", "schema": SCHEMA}},
        {"guided_json": SCHEMA},
        {"guided_json": json.dumps(SCHEMA)},
        {"structured_outputs": {"json": SCHEMA, "regex": None, "disable_fallback": False}},
    ],
)
def test_every_way_to_give_a_schema(server: RunningServer, path: str, form: dict[str, Any]) -> None:
    answer = server.post(path, **asking(path, **form)).json()
    validate(json.loads(text_of(answer)), SCHEMA)
    assert answer["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(
    ("form", "pattern"),
    [
        ({"guided_regex": "[0-9]{3}号"}, "[0-9]{3}号"),
        ({"guided_choice": ["yes", "no"]}, "yes|no"),
        ({"guided_grammar": 'root ::= "a" "b"'}, "ab"),
        ({"structured_outputs": {"regex": "[0-9]{3}号"}}, "[0-9]{3}号"),
        ({"structured_outputs": {"choice": ["yes", "no"]}}, "yes|no"),
        ({"structured_outputs": {"grammar": 'start: "a" "b"'}}, "ab"),
        ({"structured_outputs": {"json_object": True}, "stop": "{"}, ""),
        ({"response_format": {"type": "json_object"}, "stop": "{"}, ""),
    ],
)
def test_every_other_form(server: RunningServer, path: str, form: dict[str, Any], pattern: str) -> None:
    answer = server.post(path, **asking(path, **form)).json()
    assert re.fullmatch(pattern, text_of(answer)), text_of(answer)


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(
    ("form", "field", "reason"),
    [
        ({"guided_json": {"type": "strin"}}, "guided_json", "Invalid type: strin"),
        ({"structured_outputs": {"json": {"uniqueItems": True}}}, "structured_outputs", "uniqueItems"),
        ({"guided_json": '{"const":NaN}'}, "guided_json", "NaN is no number of JSON"),
        ({"guided_json": '{"enum":[1,-Infinity]}'}, "guided_json", "-Infinity is no number of JSON"),
        ({"structured_outputs": {"json": '{"const":1e999}'}}, "structured_outputs", "1e999 is no number"),
        ({"guided_regex": "["}, "guided_regex", "unclosed character class"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}},
            "response_format",
            "not",
        ),
        ({"response_format": {"type": "json_schema"}}, "response_format", "schema must be an object"),
        ({"response_format": {"type": "json_object", "schema": 1}}, "response_format", "must be an object"),
        ({"response_format": {"type": "xml"}}, "response_format", "'json_schema', not 'xml'"),
        (
            {"structured_outputs": {"structural_tag": "x"}},
            "structured_outputs",
            "structural_tag is not supported",
        ),
        ({"structured_outputs": {}}, "structured_outputs", "not none"),
        ({"guided_choice": []}, "guided_choice", "choice must be a list"),
        ({"guided_json": 3}, "guided_json", "json must be an object or a string"),
        (
            {"guided_regex": "a", "guided_choice": ["a"]},
            "guided_choice",
            "guided_regex and guided_choice are ways",
        ),
        (
            {"response_format": {"type": "json_object"}, "guided_json": SCHEMA},
            "guided_json",
            "response_format and guided_json are ways to ask for the same; give one",
        ),
        ({"guided_choice": ["a"], "allowed_token_ids": [1]}, "guided_choice", "both say what may come"),
        ({"guided_whitespace_pattern": " "}, "guided_whitespace_pattern", "not supported"),
    ],
)
def test_what_is_wrong_is_named(
    server: RunningServer, path: str, form: dict[str, Any], field: str, reason: str
) -> None:
    for stream in (False, True):
        response = server.post(path, **asking(path, **form, stream=stream))
        error = response.json()["error"]
        assert (response.status_code, error["type"]) == (400, "invalid_request_error")
        assert error["param"] == field and reason in error["message"]
    eventually(lambda: server.work() == 0)


@pytest.mark.parametrize(
    "form",
    [
        {"json_schema": SCHEMA},
        {"grammar": 'root ::= "{\\"ok\\":true,\\"名\\":\\"\\"}"'},
        {"response_format": {"type": "json_object", "schema": SCHEMA}},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
        {"response_format": {"type": "text"}, "json_schema": SCHEMA},
    ],
)
def test_what_is_filled_in_has_the_form(server: RunningServer, form: dict[str, Any]) -> None:
    answer = server.post("/infill", input_prefix="x = ", n_predict=200, seed=1, **form).json()
    validate(json.loads(answer["content"]), SCHEMA)
    assert answer["stop_type"] == "eos"


@pytest.mark.parametrize(
    ("form", "field"),
    [
        ({"json_schema": {"type": "strin"}}, "json_schema"),
        ({"grammar": "root ::= ("}, "grammar"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"json_schema": SCHEMA, "response_format": {"type": "json_object"}}, "response_format"),
        ({"json_schema": SCHEMA, "grammar": 'root ::= "a"'}, "grammar"),
    ],
)
def test_a_wrong_form_of_what_is_filled_in_is_named(
    server: RunningServer, form: dict[str, Any], field: str
) -> None:
    refused = server.post("/infill", input_prefix="x = ", **form)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, field), refused.text


def test_a_response_format_of_text_asks_for_nothing(server: RunningServer) -> None:
    form = {"response_format": {"type": "text"}, "guided_choice": ["yes"]}
    assert text_of(server.post(CHAT, **asking(CHAT, **form)).json()) == "yes"


# ------------------------------------------------------------------ together


def test_choices_prompts_and_logprobs(server: RunningServer) -> None:
    answer = server.post(
        COMPLETIONS, prompt=["a", "b"], n=2, guided_json=DIGITS, max_tokens=100, logprobs=1, seed=3
    ).json()
    assert len(answer["choices"]) == 4
    for index, choice in enumerate(answer["choices"]):
        validate(json.loads(text_of(answer, index)), DIGITS)
        assert "".join(choice["logprobs"]["tokens"]) == choice["text"]


@pytest.mark.parametrize("stop", [None, ["true", "false"]])
def test_streamed_it_is_the_same(server: RunningServer, stop: list[str] | None) -> None:
    asked = asking(CHAT, n=2, response_format={"type": "json_object"}, guided_json=None, stop=stop)
    asked["response_format"] = {"type": "json_schema", "json_schema": {"name": "it", "schema": SCHEMA}}
    whole = server.post(CHAT, **asked).json()
    streamed = ["", ""]
    with server.http.stream("POST", CHAT, json={**asked, "stream": True}) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                (choice,) = json.loads(line.removeprefix("data: "))["choices"]
                streamed[choice["index"]] += choice["delta"].get("content", "")
    assert streamed == [text_of(whole, 0), text_of(whole, 1)]
    for text in streamed:
        if stop:
            assert re.fullmatch(r'\{\s*"ok"\s*:\s*', text)
        else:
            validate(json.loads(text), SCHEMA)


class Answer(BaseModel):
    kind: str = Field(max_length=5)
    parts: list[bool] = Field(max_length=2)
    rest: int | None = Field(ge=0, le=9)


def test_the_official_clients_parse(server: RunningServer) -> None:
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    messages = [{"role": "user", "content": "hi"}]
    answer = client.chat.completions.parse(  # type: ignore[call-overload]
        model="babbler", messages=messages, response_format=Answer, max_tokens=300
    )
    assert isinstance(answer.choices[0].message.parsed, Answer)
