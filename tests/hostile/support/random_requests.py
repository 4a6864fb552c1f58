"""Valid requests with a random choice of parameters."""

from __future__ import annotations

import random
from typing import Any

from endpoints import TOOLS

__all__ = ["random_request"]

Json = dict[str, Any]

TEXTS = [
    "def add(a, b):\n    return",
    "import os\n",
    "class Foo:\n    def __init__(self",
    "# 你好 🌍\nprint(",
    "a",
]
STOPS = ["self", "\n", "def", " ", "return", "(", "\n\n", "e", "None", ").", "__", "}", '"']
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string", "maxLength": 6}, "c": {"enum": ["x", "yy", "é"]}},
    "required": ["a", "c"],
    "additionalProperties": False,
}
FORMS: list[Json] = [
    {"response_format": {"type": "json_schema", "json_schema": {"name": "form", "schema": SCHEMA}}},
    {"response_format": {"type": "json_object"}},
    {"structured_outputs": {"regex": r"[a-z]{2,5}( [0-9]+)?"}},
    {"structured_outputs": {"regex": r"(é|ü|你好)+x"}},
    {"structured_outputs": {"choice": ["yes", "no", "no way", "né"]}},
]
RARE: list[tuple[float, Json]] = [
    (0.2, {"presence_penalty": 0.5}),
    (0.2, {"frequency_penalty": -1}),
    (0.2, {"repetition_penalty": 1.2}),
    (0.2, {"include_stop_str_in_output": True}),
    (0.2, {"stop_token_ids": list(range(200, 700, 12))}),
    (0.3, {"ignore_eos": True}),
    (0.2, {"skip_special_tokens": False}),
    (0.1, {"logit_bias": {"264": 5, "311": -100, "725": 3}}),
    (0.1, {"bad_words": ["self", " ("]}),
    (0.1, {"truncate_prompt_tokens": 3}),
    (0.1, {"cache_salt": "salt"}),
]


def random_request(drawn: random.Random) -> tuple[str, Json]:
    """A path, and the body of a request without `stream`."""
    body: Json = {"max_tokens": drawn.choice([1, 2, 8, 17, 32]), **_sampling(drawn)}
    for share, fields in RARE:
        if drawn.random() < share:
            body |= fields
    if drawn.random() < 0.4:
        body["stop"] = drawn.sample(STOPS, drawn.randint(1, 3))
    if drawn.random() < 0.2:
        body["min_tokens"] = min(4, body["max_tokens"])
    if drawn.random() < 0.2:
        body |= drawn.choice(FORMS)
    return _completion(drawn, body) if drawn.random() < 0.5 else _chat(drawn, body)


def _sampling(drawn: random.Random) -> Json:
    kind = drawn.random()
    if kind < 0.1:
        return {"use_beam_search": True, "beam_width": 3, "n": drawn.choice([1, 2])}
    choices = {"n": 3} if drawn.random() < 0.15 else {}
    if kind < 0.5:
        return {"temperature": 0, **choices}
    return {
        **{"temperature": drawn.choice([0.5, 1.5]), "seed": drawn.randrange(1000), **choices},
        **drawn.choice([{}, {"top_p": 0.9}, {"top_k": 20}, {"min_p": 0.2}]),
    }


def _completion(drawn: random.Random, body: Json) -> tuple[str, Json]:
    text = drawn.choice(TEXTS) * drawn.choice([1, 3, 20])
    tokens = [drawn.randrange(3, 1000) for _ in range(drawn.choice([1, 40]))]
    body |= {"prompt": drawn.choice([text, [text, drawn.choice(TEXTS)], tokens])}
    if drawn.random() < 0.4:
        body["logprobs"] = drawn.choice([0, 1, 5])
    return "/v1/completions", body | drawn.choice([{}, {}, {}, {"echo": True}])


def _chat(drawn: random.Random, body: Json) -> tuple[str, Json]:
    body |= {"messages": [{"role": "user", "content": drawn.choice(TEXTS)}]}
    if drawn.random() < 0.4:
        body |= {"logprobs": True, "top_logprobs": drawn.choice([0, 1, 4])}
    if drawn.random() < 0.3:
        body |= {"tools": TOOLS, "tool_choice": drawn.choice(["auto", "none", "required"]), "max_tokens": 40}
    return "/v1/chat/completions", body
