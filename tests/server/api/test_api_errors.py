"""Whatever a client sends, it gets an OpenAI error object with the right status, and never a traceback."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from running_server import RunningServer, Start, eventually, running

from turnout.config import EngineConfig, ServerConfig
from turnout.text.tokenizer import Tokenizer

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
HI = [{"role": "user", "content": "hi"}]


def error(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    body = response.json()["error"]
    assert body.keys() == {"message", "type", "param", "code"}
    assert "Traceback" not in body["message"]
    assert body["type"] == ("invalid_request_error" if status < 500 else "server_error")
    return body


def message(response: httpx.Response, status: int) -> str:
    found: str = error(response, status)["message"]
    return found


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[1]", b'"text"', b'{"prompt": NaN}', b"\xff", b'{"prompt": "\\ud83d"}', b"[" * 100_000],
    ids=["empty", "cut", "list", "string", "nan", "not utf-8", "half a surrogate pair", "deep"],
)
def test_what_is_not_a_json_object(server: RunningServer, body: bytes) -> None:
    for path in (COMPLETIONS, CHAT):
        error(server.http.post(path, content=body), 400)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (COMPLETIONS, {}, "prompt"),
        (COMPLETIONS, {"prompt": 5}, "prompt"),
        (COMPLETIONS, {"prompt": []}, "prompt"),
        (COMPLETIONS, {"prompt": ["a", 5]}, "prompt"),
        (COMPLETIONS, {"prompt": [[]]}, "prompt"),
        (COMPLETIONS, {"prompt": [-1]}, "prompt"),
        (COMPLETIONS, {"prompt": [10**30]}, "prompt"),
        (COMPLETIONS, {"prompt": [True]}, "prompt"),
        (COMPLETIONS, {"prompt": [5000]}, "prompt"),
        (COMPLETIONS, {"prompt": ""}, "prompt"),
        (COMPLETIONS, {"prompt": "a", "max_tokens": "5"}, "max_tokens"),
        (COMPLETIONS, {"prompt": "a", "max_tokens": 1.5}, "max_tokens"),
        (COMPLETIONS, {"prompt": "a", "max_tokens": 0}, "max_tokens"),
        (COMPLETIONS, {"prompt": "a", "max_tokens": 1000}, "max_tokens"),
        (COMPLETIONS, {"prompt": "a", "max_tokens": 10**30}, "max_tokens"),
        (COMPLETIONS, {"prompt": "a", "n": True}, "n"),
        (COMPLETIONS, {"prompt": "a", "n": 1000}, "n"),
        (COMPLETIONS, {"prompt": "a", "temperature": "hot"}, "temperature"),
        (COMPLETIONS, {"prompt": "a", "temperature": -1}, "temperature"),
        (COMPLETIONS, {"prompt": "a", "top_p": 0}, "top_p"),
        (COMPLETIONS, {"prompt": "a", "seed": 10**30}, "seed"),
        (COMPLETIONS, {"prompt": "a", "priority": 10**30}, "priority"),
        (COMPLETIONS, {"prompt": "a", "stop": 5}, "stop"),
        (COMPLETIONS, {"prompt": "a", "stop": ["a", 5]}, "stop"),
        (COMPLETIONS, {"prompt": "a", "stop": ""}, "stop"),
        (COMPLETIONS, {"prompt": "a", "stop": ["x"] * 100}, "stop"),
        (COMPLETIONS, {"prompt": "a", "stop_token_ids": ["x"]}, "stop_token_ids[0]"),
        (COMPLETIONS, {"prompt": "a", "stop_token_ids": [10**9]}, "stop_token_ids"),
        (COMPLETIONS, {"prompt": "a", "logit_bias": {"x": 1}}, "logit_bias"),
        (COMPLETIONS, {"prompt": "a", "logit_bias": {"5": 1000}}, "logit_bias.5"),
        (COMPLETIONS, {"prompt": "a", "logit_bias": {"5000": 1}}, "logit_bias"),
        (COMPLETIONS, {"prompt": "a", "logprobs": True}, "logprobs"),
        (COMPLETIONS, {"prompt": "a", "logprobs": 100}, "logprobs"),
        (COMPLETIONS, {"prompt": "a", "prompt_logprobs": 100}, "prompt_logprobs"),
        (COMPLETIONS, {"prompt": "a", "n": 3, "best_of": 2}, "best_of"),
        (COMPLETIONS, {"prompt": "a", "best_of": 3, "stream": True}, "best_of"),
        (COMPLETIONS, {"prompt": "a", "best_of": 3, "use_beam_search": True}, "best_of"),
        (COMPLETIONS, {"prompt": "a", "use_beam_search": True, "top_p": 0.5}, "top_p"),
        (COMPLETIONS, {"prompt": "a", "use_beam_search": True, "temperature": 0.5}, "temperature"),
        (COMPLETIONS, {"prompt": "a", "use_beam_search": True, "beam_width": 2, "n": 3}, "n"),
        (COMPLETIONS, {"prompt": "a", "use_beam_search": True, "early_stopping": "soon"}, "early_stopping"),
        (COMPLETIONS, {"prompt": "a", "use_beam_search": True, "length_penalty": 100}, "length_penalty"),
        (COMPLETIONS, {"prompt": "a", "beam_width": 2}, "beam_width"),
        (COMPLETIONS, {"prompt": "a", "length_penalty": 2}, "length_penalty"),
        (COMPLETIONS, {"prompt": "a", "early_stopping": True}, "early_stopping"),
        (COMPLETIONS, {"prompt": "a", "suffix": "b"}, "suffix"),
        (COMPLETIONS, {"prompt": "a", "stop_regex": "b+"}, "stop_regex"),
        (COMPLETIONS, {"prompt": "a", "typical_p": 0.9}, "typical_p"),
        (COMPLETIONS, {"prompt": "a", "max_completion_tokens": 5}, "max_completion_tokens"),
        (COMPLETIONS, {"prompt": "a", "vllm_xargs": 5}, "vllm_xargs"),
        (COMPLETIONS, {"prompt": "a", "vllm_xargs": {"thougt": "long"}}, "vllm_xargs"),
        (COMPLETIONS, {"prompt": "a", "vllm_xargs": {"thought": {}}}, "vllm_xargs"),
        (CHAT, {"messages": HI, "vllm_xargs": {"thought": [10**30]}}, "vllm_xargs"),
        (COMPLETIONS, {"prompt": "a", "stream_options": {"include_usage": True}}, "stream_options"),
        (COMPLETIONS, {"prompt": "a", "stream": "yes"}, "stream"),
        (CHAT, {}, "messages"),
        (CHAT, {"messages": []}, "messages"),
        (CHAT, {"messages": "hi"}, "messages"),
        (CHAT, {"messages": [{"content": "hi"}]}, "messages[0].role"),
        (CHAT, {"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content"),
        (CHAT, {"messages": [{"role": "user", "content": "x" * 9000}]}, "messages"),
        (CHAT, {"messages": HI, "logprobs": 5}, "logprobs"),
        (CHAT, {"messages": HI, "top_logprobs": 5}, "top_logprobs"),
        (CHAT, {"messages": HI, "logprobs": True, "top_logprobs": 50}, "top_logprobs"),
        (CHAT, {"messages": HI, "tools": [{"type": "function"}]}, "tools[0].function"),
        (CHAT, {"messages": HI, "tools": [{"type": "magic"}], "tool_choice": "auto"}, "tools[0].type"),
        (CHAT, {"messages": HI, "echo": True}, "echo"),
        (CHAT, {"messages": HI, "max_tokens": 0}, "max_tokens"),
        (CHAT, {"messages": HI, "max_completion_tokens": 0}, "max_completion_tokens"),
        (CHAT, {"messages": HI, "tool_choice": "always"}, "tool_choice"),
        (CHAT, {"messages": HI, "tool_choice": {"type": "function"}}, "tool_choice"),
        (CHAT, {"messages": HI, "response_format": {"type": "xml"}}, "response_format"),
        (CHAT, {"messages": HI, "chat_template_kwargs": {"chat_template": "x"}}, "chat_template_kwargs"),
        (CHAT, {"messages": HI, "continue_final_message": True}, "continue_final_message"),
    ],
    ids=lambda value: json.dumps(value)[:60] if isinstance(value, dict) else None,
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_wrong_is_named(
    server: RunningServer, path: str, body: dict[str, object], param: str, stream: bool
) -> None:
    if stream and not {"stream", "stream_options"} & body.keys():
        body = {**body, "stream": True}
    found = error(server.post(path, **body), 400)
    assert found["param"] == param
    assert found["message"]


def test_what_asks_for_nothing_is_accepted(server: RunningServer) -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    nothing = {"tools": [tool], "tool_choice": "none", "echo": False, "typical_p": 1.0}
    assert server.post(CHAT, messages=HI, max_tokens=1, **nothing).status_code == 200
    nothing = {"logprobs": False, "top_logprobs": 0}
    answer = server.post(CHAT, messages=HI, max_tokens=1, **nothing)
    assert answer.status_code == 200 and answer.json()["choices"][0]["logprobs"] is None
    nothing = {"stop_regex": None, "verbosity": "medium", "repeat_penalty": 1, "lora": [], "unheard_of": 5}
    assert server.post(COMPLETIONS, prompt="a", max_tokens=1, **nothing).status_code == 200


def test_a_parameter_of_another_server_is_told_its_name_here(server: RunningServer) -> None:
    found = error(server.post(COMPLETIONS, prompt="a", n_predict=5), 400)
    assert found["message"] == "n_predict is not supported; this server has max_tokens"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("prompt", "sums", "param"),
    [
        ([65] * 600, "the prompt has 600; shorten the prompt", "prompt"),
        ("a" * 600, "the prompt has 600 and at least one is needed for the output", "prompt"),
        ([65] * 512, "the prompt has 512 and at least one is needed for the output", "prompt"),
        (
            [65] * 500,
            "520 were requested: 500 in the prompt and max_tokens=20; ask for at most 12",
            "max_tokens",
        ),
    ],
    ids=["tokens", "a text", "no room for a token", "an output"],
)
def test_what_exceeds_the_context_is_told_the_sums(
    server: RunningServer, prompt: object, sums: str, param: str, stream: bool
) -> None:
    """By OpenAI's code, or its message's words, agents know that they are to shorten a conversation."""
    found = error(server.post(COMPLETIONS, prompt=prompt, max_tokens=20, stream=stream), 400)
    assert found["message"].startswith(f"this model's maximum context length is 512 tokens, but {sums}")
    assert (found["param"], found["code"]) == (param, "context_length_exceeded")


def test_one_bad_prompt_of_several(server: RunningServer) -> None:
    """A stream may have begun with the others by then."""
    body = {"prompt": [[65], [5000]], "user": "slow", "max_tokens": 500}
    error(server.post(COMPLETIONS, **body), 400)
    assert "token id 5000 is outside the vocabulary" in server.post(COMPLETIONS, **body, stream=True).text
    eventually(lambda: server.work() == 0, 1)


def test_what_asks_for_nothing_special_is_served(server: RunningServer) -> None:
    harmless = {
        "user": "me", "metadata": {"a": "b"}, "store": False, "service_tier": "auto", "tools": None,
        "tool_choice": "none", "response_format": {"type": "text"}, "best_of": None, "something_new": 1,
        "model": None, "temperature": None, "stop": None, "stream": None, "parallel_tool_calls": True,
    }  # fmt: skip
    assert server.post(CHAT, messages=HI, max_tokens=1, **harmless).status_code == 200
    assert server.post(COMPLETIONS, prompt="hi", **{**harmless, "best_of": 1}).status_code == 200


def test_a_model_without_chat_template(tokenizer: Tokenizer) -> None:
    bare = Tokenizer(tokenizer.backend)
    with running(bare, EngineConfig(model="echo"), ServerConfig()) as server:
        assert "has no chat template" in error(server.post(CHAT, messages=HI), 400)["message"]
        assert server.post(COMPLETIONS, prompt="hi").status_code == 200


def test_content_in_parts(server: RunningServer) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    answer = server.post(CHAT, messages=[{"role": "user", "content": parts}], max_tokens=3).json()
    assert answer["choices"][0]["message"]["content"] == "a\nb"


def test_a_refusal_in_the_history_is_text(server: RunningServer) -> None:
    """OpenAI's clients send an earlier answer back as they got it."""
    parts = [{"type": "refusal", "refusal": "no"}]

    def tokens(content: object) -> int:
        messages = [{"role": "assistant", "content": content}, {"role": "user", "content": "a"}]
        usage = server.post(CHAT, messages=messages, max_tokens=1).json()["usage"]
        return int(usage["prompt_tokens"])

    assert tokens(parts) == tokens("no") > tokens("")
    said = server.post(CHAT, messages=[{"role": "assistant", "content": [{"type": "refusal"}]}]).json()
    assert "a part of type 'refusal' is expected to have a refusal" in said["error"]["message"]


def test_reasoning_is_separate_and_cannot_be_otherwise(server: RunningServer) -> None:
    """`separate_reasoning` is SGLang's; true is its default, and was refused."""
    asked = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}
    assert server.post(CHAT, **asked, separate_reasoning=True).status_code == 200
    refused = server.post(CHAT, **asked, separate_reasoning=False)
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "separate_reasoning"


def test_a_part_without_its_text(server: RunningServer) -> None:
    """It was told that parts of its type are not supported."""
    said = message(server.post(CHAT, messages=[{"role": "user", "content": [{"type": "text"}]}]), 400)
    assert "a part of type 'text' is expected to have a text" in said


def test_a_message_names_the_field_that_was_sent(server: RunningServer) -> None:
    for many, words in ((0, "max_completion_tokens must be"), (1000, "and max_completion_tokens=1000; ask")):
        assert words in message(server.post(CHAT, messages=HI, max_completion_tokens=many), 400)


def test_unknown_model(server: RunningServer) -> None:
    assert error(server.post(CHAT, model="x", messages=HI), 404)["code"] == "model_not_found"
    assert error(server.http.get("/v1/models/x"), 404)["param"] == "model"


def test_unknown_route_and_wrong_method(server: RunningServer) -> None:
    """They said no more than "Not Found" to who had left ``/v1`` out of a base URL."""
    assert "there is no /chat/completions here; the OpenAI API is under /v1" in message(
        server.http.post("/chat/completions", json={}), 404
    )
    assert f"{COMPLETIONS} does not take GET; it takes POST" in message(server.http.get(COMPLETIONS), 405)


@pytest.mark.parametrize(
    ("method", "path", "taken"),
    [
        ("PUT", "/v1/files", "GET, HEAD, POST"),
        ("PUT", "/ping", "GET, HEAD, POST"),
        ("PUT", "/ping/", "GET, HEAD, POST"),
        ("DELETE", "/admin/replicas", "GET, HEAD, POST"),
        ("POST", "/v1/responses/x", "DELETE, GET, HEAD"),
        ("PATCH", "/v1/files/x", "DELETE, GET, HEAD"),
        ("GET", COMPLETIONS, "POST"),
    ],
)
def test_a_wrong_method_is_told_all_that_the_path_takes(
    server: RunningServer, method: str, path: str, taken: str
) -> None:
    """Those of the path's first route alone were named."""
    response = server.http.request(method, path)
    assert message(response, 405).endswith(f"does not take {method}; it takes {taken}")
    assert response.headers["allow"] == taken


def test_variables_of_the_chat_template_may_have_any_other_name(server: RunningServer) -> None:
    """Those called `limit` and `template` were taken for arguments of ours, and answered with 500."""
    variables = {"limit": 1, "template": 1, "enable_thinking": False}
    assert server.post(CHAT, messages=HI, chat_template_kwargs=variables, max_tokens=1).status_code == 200


def test_a_body_over_the_limit(server: RunningServer) -> None:
    def chunks() -> Any:
        for _ in range(20):
            yield b" " * 10_000

    for content in (b" " * 200_000, chunks()):
        error(httpx.post(server.url + COMPLETIONS, content=content), 413)


def test_the_api_key(start: Start) -> None:
    server = start(api_key="sécret")
    assert server.http.get("/health").status_code == 200
    for key in (None, "wrong", "sécre"):
        headers = {} if key is None else {"Authorization": f"Bearer {key}".encode()}
        found = error(server.http.get("/v1/models", headers=headers), 401)
        assert found["code"] == "invalid_api_key"
    headers = {"Authorization": "Bearer sécret".encode()}
    assert server.http.get("/v1/models", headers=headers).status_code == 200


def test_too_many_waiting(start: Start) -> None:
    server = start({"max_waiting": 2, "max_num_seqs": 1})
    response = server.post(COMPLETIONS, prompt=[[65]] * 20, user="slow")
    assert error(response, 503)["code"] == "overloaded"
    assert response.headers["retry-after"] == "1"


def test_a_server_that_holds_as_many_as_it_may_says_so_and_nothing_of_an_engine_that_answers(
    start: Start,
) -> None:
    server = start({"max_waiting": 1, "max_num_seqs": 1})
    with ThreadPoolExecutor(2) as pool:
        for _ in range(2):
            pool.submit(server.post, COMPLETIONS, prompt="a", max_tokens=60, user="slow")
        eventually(lambda: len(server.client.streams) == 2)
        message = error(server.post(COMPLETIONS, prompt="a"), 503)["message"]
    assert message == (
        "2 requests are waiting or running, the most that --max-waiting and --max-num-seqs allow; retry later"
    )


def test_a_request_that_breaks_the_decoding(server: RunningServer) -> None:
    assert "what did you say?" in error(server.post(COMPLETIONS, prompt="a", user="confused"), 500)["message"]
    assert server.post(COMPLETIONS, prompt="a").status_code == 200
