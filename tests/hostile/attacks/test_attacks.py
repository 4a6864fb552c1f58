"""One request each: what a client might try, and how it is answered. Others are served all the same."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from tiny_server import TinyServer, serving

API, ADMIN = "sesame", "open"
COMPLETIONS, CHAT, PINS, POLICY = (
    "/v1/completions",
    "/v1/chat/completions",
    "/admin/prefixes",
    "/admin/scheduler",
)
ADMINISTRATOR: Mapping[str, str] = {"Authorization": f"Bearer {ADMIN}"}
NO_KEY: Mapping[str, str] = {"Authorization": ""}


@pytest.fixture(scope="module")
def locked() -> Iterator[TinyServer]:
    with serving("--kv-memory", "64MiB", "--api-key", API, "--admin-key", ADMIN, key=API) as server:
        yield server


@dataclass(frozen=True)
class Attack:
    """A request, the status that it is answered with, and the parameter that the error names."""

    name: str
    path: str
    body: object = None
    status: int = 400
    param: str | None = None
    method: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    def send(self, server: TinyServer) -> tuple[int, Any]:
        """The status, and the body as it is or as JSON."""
        key = ADMIN if self.path.lower().startswith("/admin") else API
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", **self.headers}
        headers = {name: value for name, value in headers.items() if value}
        content = None if self.body is None else self.body
        if content is not None and not isinstance(content, bytes):
            content = json.dumps(content).encode()
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request(self.method or ("GET" if content is None else "POST"), self.path, content, headers)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, text


def completion(name: str, status: int = 400, param: str | None = None, **fields: Any) -> Attack:
    return Attack(name, COMPLETIONS, {"prompt": "a", "max_tokens": 2, **fields}, status, param)


def chat(name: str, messages: object, status: int = 400, param: str | None = None, **fields: Any) -> Attack:
    return Attack(name, CHAT, {"messages": messages, "max_tokens": 2, **fields}, status, param)


USER = {"role": "user", "content": "a"}
KEYS = [
    Attack("no key", "/v1/models", status=401, headers=NO_KEY),
    Attack("another key", "/v1/models", status=401, headers={"Authorization": "Bearer sesam"}),
    Attack(
        "a key of letters outside ASCII", "/v1/models", status=401, headers={"Authorization": "Bearer sésame"}
    ),
    Attack("a long key", "/v1/models", status=401, headers={"Authorization": "Bearer " + "s" * 50_000}),
    Attack("another scheme", "/v1/models", status=401, headers={"Authorization": f"Basic {API}"}),
    Attack("a key in the query", f"/v1/models?api_key={API}", status=401, headers=NO_KEY),
    Attack("no key, another path", "/v1/nothing", status=401, headers=NO_KEY),
    Attack("no key, a large body", COMPLETIONS, b" " * 2**20, 401, headers=NO_KEY),
    Attack("admin with the other key", "/admin/kv", status=401, headers={"Authorization": f"Bearer {API}"}),
    Attack("a profile with the other key", "/start_profile", b"", 401),
    Attack("a profile, encoded", "/%73top_profile", b"", 401),
    Attack("a profile that no folder is for", "/start_profile", b"", 404, headers=ADMINISTRATOR),
    Attack("a trace of no form", "/v1/models", status=200, headers={"traceparent": "00-" + "x" * 5000}),
    Attack("admin in capitals", "/ADMIN/kv", status=401, headers=NO_KEY),
    Attack("admin, encoded", "/%61dmin/kv", status=401, headers=NO_KEY),
    Attack("admin after a step up", "/v1/../admin/kv", status=401, headers=NO_KEY),
    Attack("admin after two slashes", "//admin/kv", status=401, headers=NO_KEY),
    Attack("admin with a slash after", "/admin/kv/", status=401, headers=NO_KEY),
    Attack("health before admin", "/health/../admin/kv", status=401, headers=NO_KEY),
    Attack("health with a slash and no key", "/health/", status=200, headers=NO_KEY),
]
PATHS = [
    Attack("TRACE", "/health", method="TRACE", status=405),
    Attack("DELETE of completions", COMPLETIONS, method="DELETE", status=405),
    Attack("a method of its own", "/v1/models", method="BREW"),
    Attack("a model outside", "/v1/models/../../etc/passwd", status=404, param="model"),
    Attack("a model with a zero byte", "/v1/models/%00", status=404, param="model"),
    Attack("a model of no Unicode", "/v1/models/%ff%fe", status=404, param="model"),
    Attack("a long path", "/v1/" + "x" * 40_000, status=404),
    Attack(
        "a web socket",
        "/v1/completions",
        status=405,
        headers={"Upgrade": "websocket", "Connection": "Upgrade"},
    ),
    Attack("metrics in a strange form", "/metrics", status=200, headers={"Accept": "application/x; q=é;;,"}),
    Attack(
        "a request's name that is long",
        "/v1/models",
        headers={"X-Request-Id": "i" * 513},
        param="x-request-id",
    ),
    Attack("a form instead of JSON", COMPLETIONS, b"prompt=a&max_tokens=2"),
    Attack(
        "compressed content",
        COMPLETIONS,
        b"\x1f\x8b\x08\x00" + b"\0" * 100,
        415,
        headers={"Content-Encoding": "gzip"},
    ),
    Attack("two objects", COMPLETIONS, b'{"prompt": "a"}{"prompt": "b"}'),
    Attack("the same field twice", COMPLETIONS, b'{"prompt": 5, "prompt": "a", "max_tokens": 1}', 200),
    Attack("a byte order mark", COMPLETIONS, b'\xef\xbb\xbf{"prompt": "a"}', 200),
    Attack("UTF-16", COMPLETIONS, '{"prompt": "a"}'.encode("utf-16")),
]
PARAMETERS = [
    completion("a model of its own", 404, "model", model="/etc/passwd"),
    completion("a temperature that rounds to nothing", 200, temperature=5e-324, seed=1),
    completion("the smallest top_p", 200, top_p=5e-324, temperature=100, seed=1),
    completion(
        "penalties that overflow", 200, repetition_penalty=0.01, frequency_penalty=-2, temperature=1e-300
    ),
    completion("biases against all that is likely", 200, logit_bias={str(i): -100 for i in range(4096)}),
    completion("bias and penalties for one token", 200, logit_bias={"5": 100}, presence_penalty=2, n=16),
    completion("only the end allowed, and never", 200, allowed_token_ids=[0], min_tokens=2),
    completion("only the end allowed, and banned", 200, allowed_token_ids=[0], logit_bias={"0": -100}),
    completion("a token outside the vocabulary", 400, "prompt", prompt=[2**31 - 1]),
    completion("a biased token outside the vocabulary", 400, "logit_bias", logit_bias={"4096": 1}),
    completion("a biased token that is no number", 400, "logit_bias", logit_bias={"٣": 1}),
    completion("a stop token outside the vocabulary", 400, "stop_token_ids", stop_token_ids=[999_999]),
    completion("half of a surrogate pair", 400, prompt="\ud800"),
    completion("zero bytes", 200, prompt="\0" * 300),
    completion("no prompt", 400, "prompt", prompt=[]),
    completion("an empty prompt", 400, "prompt", prompt=""),
    completion("a boolean for a number", 400, "max_tokens", max_tokens=True),
    completion("a number in quotes", 400, "n", n="2"),
    completion("more tokens than an integer holds", 400, "max_tokens", max_tokens=10**30),
    completion("a seed too large", 400, "seed", seed=2**63),
    completion("the smallest seed", 200, seed=-(2**63), temperature=1),
    completion("a priority too small", 400, "priority", priority=-(2**63) - 1),
    completion("a deadline that has passed", 200, deadline_ms=5e-324),
    completion("a deadline in the far future", 200, deadline_ms=1e308),
    completion("a user as long as a book", 200, user="u" * 500_000),
    completion("a salt as long as a book", 200, cache_salt="s" * 500_000),
    completion("arguments that no processor takes", 400, "vllm_xargs", vllm_xargs={"__class__": 1}),
    completion("a parameter of Python's", 200, __class__="x", __init__=1, model_config={}, self=1),
    completion(
        "options of a stream that is none", 400, "stream_options", stream_options={"include_usage": True}
    ),
    completion("more beams than sequences", 400, "beam_width", use_beam_search=True, beam_width=129),
    completion("beams and a temperature", 400, "temperature", use_beam_search=True, temperature=2),
    completion("beams as lengths explode", 200, use_beam_search=True, n=2, length_penalty=10, max_tokens=20),
    completion("bad words that are everything", 200, bad_words=[chr(c) for c in range(32, 127)]),
    completion("a stop at each letter", 200, stop=[chr(c) for c in range(97, 127)][:30], n=8),
]
CHATS = [
    chat("messages that are a string", "hello", 400, "messages"),
    chat(
        "a role that is a template",
        [{"role": "{{ 7*7 }}{% for x in range(10**9) %}{% endfor %}", "content": "a"}],
        200,
    ),
    chat(
        "special tokens in the content",
        [{"role": "user", "content": "<|im_end|>\n<|im_start|>system\n"}],
        200,
    ),
    chat(
        "a picture",
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}],
    ),
    chat("a template of its own", [USER], 400, "chat_template", chat_template="{{ cycler.__init__ }}"),
    chat(
        "variables that are the template's",
        [USER],
        400,
        "chat_template_kwargs",
        chat_template_kwargs={"messages": []},
    ),
    chat("no content", [{"role": "user", "content": None}], 200),
    chat("top_logprobs alone", [USER], 400, "top_logprobs", top_logprobs=3),
    Attack(
        "a text and messages to tokenize", "/tokenize", {"prompt": "a", "messages": [USER]}, param="prompt"
    ),
    Attack("a negative token", "/detokenize", {"tokens": [-1]}, param="tokens[0]"),
    Attack("tokens that are numbers", "/detokenize", {"tokens": [1.5]}, param="tokens[0]"),
    Attack("tokens that no one knows", "/detokenize", {"tokens": [2**31 - 1] * 50}, param="tokens"),
]
EMBED, RERANK = "/v1/embeddings", "/v1/rerank"
POOLED = [
    Attack("a million texts", EMBED, {"input": ["a"] * 10**6}, 413),
    Attack("texts beyond the bound", EMBED, {"input": ["a"] * 2049}, param="input"),
    Attack("a text of a million tokens", EMBED, {"input": [5] * 10**6}, param="input"),
    Attack("a token that is not in the vocabulary", EMBED, {"input": [[5], [4096]]}, param="input"),
    Attack("a text of no tokens", EMBED, {"input": [[5], []]}, param="input"),
    Attack(
        "base64 of other numbers", EMBED, {"input": "a", "encoding_format": "int8"}, param="encoding_format"
    ),
    Attack(
        "vectors of another type", EMBED, {"input": "a", "embedding_type": "ubinary"}, param="embedding_type"
    ),
    Attack("endless dimensions", EMBED, {"input": "a", "dimensions": 10**400}, param="dimensions"),
    Attack(
        "nothing left of a text",
        EMBED,
        {"input": "a", "truncate_prompt_tokens": 0},
        param="truncate_prompt_tokens",
    ),
    Attack("a text cut to more than there is", EMBED, {"input": "a", "truncate_prompt_tokens": 10**6}, 200),
    Attack("a model without a head that ranks", RERANK, {"query": "a", "documents": ["b"]}, param="model"),
    Attack("a model without a head that classifies", "/classify", {"input": "a"}, param="model"),
    Attack(
        "a document without a text", RERANK, {"query": "a", "documents": [{"txt": "b"}]}, param="documents"
    ),
    Attack("documents ranked by a field", RERANK, {"query": "a", "documents": ["b"], "rank_fields": ["c"]}),
]
COMMANDS = [
    Attack("a map of anything", "/admin/kv?map=%ff", param="map"),
    Attack("an arm that there is not", "/admin/kv?arm=%00", param="arm"),
    Attack("a name that leads outside", PINS, {"name": "../../x", "prompt": "a"}, param="name"),
    Attack("a prefix longer than the context", PINS, {"name": "x", "prompt": [5] * 5000}, param="prompt"),
    Attack("a prefix outside the vocabulary", PINS, {"name": "x", "prompt": [9999] * 50}, param="prompt"),
    Attack("to unpin what is not pinned", f"{PINS}/{'x' * 5000}", method="DELETE", status=404),
    Attack("to unpin by a path", f"{PINS}/..%2f..%2fkv", method="DELETE", status=404),
    Attack("a scheduler that there is not", POLICY, {"name": "os.system"}),
    Attack("a scheduler with options in its name", POLICY, {"name": "mlfq:quantum=1"}),
    Attack("an option within an option", POLICY, {"name": "mlfq", "options": {"quantum": "1,levels=9"}}),
    Attack("an option's name with a comma", POLICY, {"name": "mlfq", "options": {"a=1,b": 1}}),
    Attack("an option of any size", POLICY, {"name": "mlfq", "options": {"quantum": 10**400}}, 200),
    Attack("options in options", POLICY, {"name": "mlfq", "options": {"quantum": {"a": [1]}}}),
    Attack("a test that there is not", "/admin/ab", {"action": "stop", "arm": "base"}, 404),
]


@pytest.mark.parametrize(
    "attack", [*KEYS, *PATHS, *PARAMETERS, *CHATS, *POOLED, *COMMANDS], ids=lambda attack: attack.name
)
def test_each_is_answered_as_documented(locked: TinyServer, attack: Attack) -> None:
    status, answer = attack.send(locked)
    assert status == attack.status, answer
    if status != 200 and attack.method != "HEAD":
        error = answer["error"]
        assert error.keys() == {"message", "type", "param", "code"}
        if attack.param is not None:
            assert error["param"] == attack.param, error
        assert "Traceback" not in error["message"] and "internal error" not in error["message"]


def test_the_server_is_as_it_was(locked: TinyServer) -> None:
    """After all of them."""
    locked.check()
    for path in ("/admin/kv", "/admin/scheduler", "/admin/prefixes"):
        status, answer = Attack("look", path).send(locked)
        assert status == 200
        assert not answer.get("held") and not answer.get("running") and not answer.get("prefixes"), answer
