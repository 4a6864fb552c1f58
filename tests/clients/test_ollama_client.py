"""Ollama's own client against /api, and what else its clients look for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import ollama
import pytest
from assistant import CONTEXT, NAME, AssistantServer, assistant_serving
from script import Script, call, rule, thought

ASKED: Any = [{"role": "user", "content": "How warm is it in Bern?"}]
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: Any = [{"type": "function", "function": {"name": "forecast", "parameters": PARAMETERS}}]


@pytest.fixture
def client(server: AssistantServer) -> Iterator[ollama.Client]:
    with ollama.Client(host=server.url) as client:
        yield client


@pytest.fixture
def http(server: AssistantServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


def joined(parts: list[Any]) -> str:
    return "".join(part.message.content or "" for part in parts)


# ------------------------------------------------------------------ /api/chat


def test_a_chat(client: ollama.Client, script: Script) -> None:
    script.say("18 degrees.")
    answer = client.chat(f"{NAME}:latest", ASKED, keep_alive="5m")
    assert (answer.message.role, answer.message.content) == ("assistant", "18 degrees.")
    assert (answer.model, answer.done, answer.done_reason) == (f"{NAME}:latest", True, "stop")
    assert answer.prompt_eval_count and answer.eval_count
    assert answer.total_duration >= answer.prompt_eval_duration + answer.eval_duration - 2 > 0


def test_a_streamed_chat_is_the_same_as_a_whole_one(tmp_path: Path) -> None:
    """With an event for each token."""
    every = "--event-interval", "0"
    with assistant_serving(tmp_path, *every) as server, ollama.Client(host=server.url) as client:
        server.script.say("It is 18 degrees, and the sun shines.")
        whole = client.chat(NAME, ASKED)
        parts = list(client.chat(NAME, ASKED, stream=True))
    assert joined(parts) == whole.message.content and len(parts) > 5
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1].eval_count == whole.eval_count and parts[-1].eval_duration
    assert parts[0].eval_count is None


def test_the_answer_has_lines_of_json(http: httpx.Client, script: Script) -> None:
    script.say("Hello!")
    with http.stream("POST", "/api/chat", json={"model": NAME, "messages": ASKED}) as response:
        assert response.headers["content-type"] == "application/x-ndjson"
        lines = [json.loads(line) for line in response.iter_lines()]
    assert lines[-1]["done"] and not lines[0]["done"]


@pytest.mark.parametrize("stream", [False, True])
def test_tools_are_called_and_results_go_back(client: ollama.Client, script: Script, stream: bool) -> None:
    script.say("I look." + call("forecast", city="Bern") + call("forecast", city="Basel"), "18 and 20.")
    conversation: list[Any] = list(ASKED)
    if stream:
        parts = list(client.chat(NAME, conversation, tools=TOOLS, stream=True))
        calls = [each for part in parts for each in part.message.tool_calls or ()]
        assert joined(parts) == "I look."
    else:
        message = client.chat(NAME, conversation, tools=TOOLS).message
        assert message.content == "I look."
        calls = list(message.tool_calls or ())
    assert [(each.function.name, each.function.arguments) for each in calls] == [
        ("forecast", {"city": "Bern"}),
        ("forecast", {"city": "Basel"}),
    ]
    conversation.append({"role": "assistant", "content": "I look.", "tool_calls": calls})
    conversation += [{"role": "tool", "tool_name": "forecast", "content": text} for text in ("18", "20")]
    assert client.chat(NAME, conversation, tools=TOOLS).message.content == "18 and 20."


def test_functions_become_tools_by_the_client(client: ollama.Client, script: Script) -> None:
    def add(a: int, b: int) -> int:
        """Adds.

        Args:
            a: One.
            b: The other.
        """
        return a + b

    script.say(call("add", a=1, b=2))
    (called,) = client.chat(NAME, ASKED, tools=[add]).message.tool_calls or ()
    assert add(**called.function.arguments) == 3


def test_a_call_that_is_cut_short_is_not_shown(client: ollama.Client, script: Script) -> None:
    script.say(call("forecast", city="B" * 400))
    answer = client.chat(NAME, ASKED, tools=TOOLS, options={"num_predict": 20})
    assert answer.done_reason == "length" and not answer.message.tool_calls


@pytest.mark.parametrize("stream", [False, True])
def test_reasoning_is_apart(client: ollama.Client, script: Script, stream: bool) -> None:
    script.say(thought("It is summer.") + "Warm.")
    if stream:
        parts = list(client.chat(NAME, ASKED, think=True, stream=True))
        thoughts, text = "".join(part.message.thinking or "" for part in parts), joined(parts)
    else:
        message = client.chat(NAME, ASKED, think="high").message
        thoughts, text = message.thinking or "", message.content or ""
    assert (thoughts.strip(), text.strip()) == ("It is summer.", "Warm.")


def test_earlier_reasoning_goes_back(client: ollama.Client, script: Script) -> None:
    script.play(rule("Yes.", "Because of the sun"))
    earlier = [*ASKED, {"role": "assistant", "content": "Warm.", "thinking": "Because of the sun"}]
    assert client.chat(NAME, [*earlier, {"role": "user", "content": "Sure?"}]).message.content == "Yes."


def test_a_format_holds_the_text(client: ollama.Client, script: Script) -> None:
    script.say('{"city": "Bern"}')
    assert json.loads(client.chat(NAME, ASKED, format=PARAMETERS).message.content or "") == {"city": "Bern"}
    assert client.chat(NAME, ASKED, format="json").message.content == '{"city": "Bern"}'
    script.say("[1]")
    with pytest.raises(ollama.ResponseError, match="the grammar forbids"):
        client.chat(NAME, ASKED, format="json")


def test_options(client: ollama.Client, script: Script) -> None:
    script.say("one two three four five")
    assert client.chat(NAME, ASKED, options={"num_predict": 2}).done_reason == "length"
    stopped = client.chat(NAME, ASKED, options={"stop": [" three"], "temperature": 0.0, "top_k": 40.0})
    assert stopped.message.content == "one two" and stopped.done_reason == "stop"
    assert stopped.eval_duration and stopped.eval_count
    harmless = {"num_ctx": 4096, "num_gpu": 99, "seed": -1, "num_predict": -1, "mirostat": 0, "min_p": 0.1}
    assert client.chat(NAME, ASKED, options=harmless).message.content == "one two three four five"
    assert client.chat(NAME, ASKED, options={"num_predict": 10**6}).done_reason == "stop"


def test_log_probabilities(client: ollama.Client, script: Script) -> None:
    script.say("one two")
    whole = client.chat(NAME, ASKED, logprobs=True, top_logprobs=2)
    assert whole.logprobs and "".join(entry.token for entry in whole.logprobs) == "one two"
    assert all(len(entry.top_logprobs or ()) >= 2 for entry in whole.logprobs)
    parts = client.chat(NAME, ASKED, logprobs=True, stream=True)
    assert "".join(entry.token for part in parts for entry in part.logprobs or ()) == "one two"


# ------------------------------------------------------------------ /api/generate


def test_a_prompt_is_answered_like_a_chat(client: ollama.Client, script: Script) -> None:
    script.play(rule("Yes.", "system\nBe short.", "user\nWarm?"))
    answer = client.generate(NAME, "Warm?", system="Be short.")
    assert answer.response == "Yes." and answer.done_reason == "stop"
    parts = list(client.generate(NAME, "Warm?", system="Be short.", stream=True))
    assert "".join(part.response for part in parts) == "Yes."
    assert parts[-1].context == answer.context and parts[0].context is None


def test_a_conversation_goes_on_by_its_context(client: ollama.Client, script: Script) -> None:
    script.say("It is warm.", "Still warm.")
    first = client.generate(NAME, "Warm?")
    assert client.generate(NAME, "And now?", context=first.context).response == "Still warm."


def test_reasoning_before_a_response(client: ollama.Client, script: Script) -> None:
    script.say(thought("Hm.") + "Warm.")
    answer = client.generate(NAME, "Warm?", think=True)
    assert ((answer.thinking or "").strip(), answer.response.strip()) == ("Hm.", "Warm.")


def test_a_raw_prompt_is_continued(client: ollama.Client, script: Script) -> None:
    script.play(rule(" upon a time", "^Once$"))
    answer = client.generate(NAME, "Once", raw=True)
    assert answer.response == " upon a time" and answer.context is None


def test_a_template_makes_the_prompt(client: ollama.Client, script: Script) -> None:
    script.play(rule("fine", "^<s>Be short.</s><u>Hi</u>$"))
    template = "{{ if .System }}<s>{{ .System }}</s>{{ end }}<u>{{ .Prompt }}</u>{{ .Response }}"
    assert client.generate(NAME, "Hi", system="Be short.", template=template).response == "fine"


def test_without_a_prompt_the_model_is_loaded(client: ollama.Client) -> None:
    assert client.generate(NAME).done_reason == "load"
    assert client.chat(NAME, [], keep_alive=0).done_reason == "unload"


# ------------------------------------------------------------------ models


def test_the_model_is_listed(client: ollama.Client) -> None:
    (listed,) = client.list().models
    (running,) = client.ps().models
    assert listed.model == running.model == f"{NAME}:latest"
    assert listed.size and listed.digest == running.digest
    assert listed.details and listed.details.family == "qwen2"


def test_the_model_is_shown_with_what_it_can(client: ollama.Client) -> None:
    shown = client.show(NAME)
    assert {"completion", "tools", "thinking"} <= set(shown.capabilities or ())
    assert "insert" not in (shown.capabilities or ())
    assert shown.modelinfo and shown.modelinfo["qwen2.context_length"] == CONTEXT
    assert shown.modelinfo["general.architecture"] == "qwen2"


def test_what_clients_look_for_first(http: httpx.Client) -> None:
    """Ollama's command line asks HEAD /; some clients compare the text; others want a version."""
    assert http.head("/").status_code == 200
    words = http.get("/", headers={"Accept": "application/json, text/plain, */*"})
    assert words.text == "Ollama is running" and words.headers["content-type"].startswith("text/plain")
    assert http.get("/").json()["model"] == NAME
    major, minor, _ = http.get("/api/version").json()["version"].split(".")
    assert (int(major), int(minor)) >= (0, 6)


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"messages": [{"role": "user", "content": "a", "images": ["aGk="]}]}, "messages[0].images"),
        ({"messages": ASKED, "options": {"mirostat": 2}}, "options.mirostat"),
        ({"messages": ASKED, "options": {"repeat_last_n": 8, "repeat_penalty": 1.2}}, "repeat_last_n"),
        ({"messages": ASKED, "options": {"num_predict": "many"}}, "options.num_predict"),
        ({"messages": ASKED, "options": {"temperature": -1}}, "temperature"),
        ({"messages": ASKED, "format": "yaml"}, "format"),
        ({"messages": ASKED, "format": "xml"}, "format: Input should be '' or 'json'"),
        ({"messages": ASKED, "format": "{"}, "format"),
        ({"messages": ASKED, "options": {"stop": [""]}}, "options.stop must hold"),
        ({"messages": ASKED, "options": {"num_predict": 2**40}}, "options.num_predict must be"),
        ({"messages": ASKED, "think": "a lot"}, "think"),
        ({"messages": ASKED, "tools": [{"type": "web"}]}, "tools[0]"),
        ({"messages": "hello"}, "messages"),
        ({"model": None, "messages": ASKED}, "model"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(http: httpx.Client, body: dict[str, Any], why: str) -> None:
    refused = http.post("/api/chat", json={"model": NAME, **body})
    assert refused.status_code == 400
    assert refused.json().keys() == {"error"} and why in refused.json()["error"]


def test_generate_refuses_too(client: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError, match="images"):
        client.generate(NAME, "a", images=[b"abc"])
    with pytest.raises(ollama.ResponseError, match="no tokens for that"):
        client.generate(NAME, "a", suffix="b")
    with pytest.raises(ollama.ResponseError, match="raw excludes template"):
        client.generate(NAME, "a", raw=True, template="b")


def test_texts_become_vectors_of_one_length(client: ollama.Client) -> None:
    one, other = client.embed(NAME, ["a cat", "a dog"]).embeddings
    assert sum(value * value for value in one) == pytest.approx(1, abs=1e-4)
    assert one != other
    assert client.embed(NAME, "a cat", dimensions=8).embeddings[0][:2] != one[:2], "normalized anew"
    assert len(client.embeddings(NAME, "a cat").embedding) == len(one)


def test_models_are_not_changed(client: ollama.Client, http: httpx.Client) -> None:
    for change in (
        lambda: client.pull("x"),
        lambda: client.push("x"),
        lambda: client.create("x", from_=NAME),
        lambda: client.copy(NAME, "x"),
    ):
        with pytest.raises(ollama.ResponseError, match="is not supported"):
            change()
    assert http.request("DELETE", "/api/delete", json={"model": NAME}).status_code == 400
    assert http.post("/api/blobs/sha256:1", content=b"x").json().keys() == {"error"}


def test_another_model_is_not_found(client: ollama.Client) -> None:
    for ask in (lambda: client.chat("llama3", ASKED), lambda: client.show("llama3")):
        with pytest.raises(ollama.ResponseError) as refused:
            ask()
        assert refused.value.status_code == 404 and NAME in refused.value.error


def test_a_body_without_a_media_type_is_read_unless_a_page_sends_it(
    http: httpx.Client, script: Script
) -> None:
    """Ollama's documentation calls `curl -d`, which declares a form."""
    script.say("Hello!")
    body = json.dumps({"model": NAME, "messages": ASKED, "stream": False})
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert http.post("/api/chat", content=body, headers=form).status_code == 200
    page = {**form, "Origin": "http://localhost:5000"}
    assert http.post("/api/chat", content=body, headers=page).status_code == 415
    assert http.post("/v1/chat/completions", content=body, headers=form).status_code == 415


def test_an_error_in_a_stream_is_a_line(http: httpx.Client, script: Script) -> None:
    script.say('{"a": [1, nonsense')
    body = {"model": NAME, "messages": ASKED, "format": "json"}
    with http.stream("POST", "/api/chat", json=body) as response:
        assert response.status_code == 200
        lines = [json.loads(line) for line in response.iter_lines()]
    assert lines[-1].keys() == {"error"} and not any(line.get("done") for line in lines)
