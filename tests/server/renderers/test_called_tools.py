"""An answer is JSON, in Ollama's API on one line, whatever the model has written as a call's arguments."""

from __future__ import annotations

import json
from typing import cast

import pytest

from turnout.core.types.logprobs import TokenLogprobs
from turnout.server.generation.generation import Generation
from turnout.server.http.json_slices import encoded_pieces
from turnout.server.protocol.ollama.responses import ChatPart
from turnout.server.renderers.messages import MessagesRenderer
from turnout.server.renderers.ollama import OllamaChatRenderer
from turnout.server.renderers.token_names import TokenNames
from turnout.text.choice_text import ShownToken, TextDelta
from turnout.text.output.events import Event, Text, ToolArguments, ToolBegin, ToolEnd
from turnout.text.tokenizer import Tokenizer


class _Generation:
    splitter = object()
    first_token_at = None
    prompt_tokens = completion_tokens = 1
    cached_tokens = 0
    reasoning_tokens = None


ARGUMENTS = pytest.mark.parametrize(
    ("written", "told"),
    [
        ('{"a": 1}', {"a": 1}),
        ('{\n  "a": [1.5,\r\n 12345678901234567890]\n}', {"a": [1.5, 12345678901234567890]}),
        ('{"a": "é 你"}', {"a": "é 你"}),
        ("", {}),
        ('{"a" 1}', {}),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", {}),
        ('{"a": ' + "[" * 100_000, {}),
    ],
)


@ARGUMENTS
def test_a_call_is_on_one_line(written: str, told: object) -> None:
    renderer = OllamaChatRenderer("model", cast(TokenNames, None), logprobs=False)
    events = [ToolBegin(0, "now"), ToolArguments(0, written), ToolEnd(0)]
    sent = renderer.delta(TextDelta(0, events=events), cast(Generation, _Generation()))
    (line,) = sent.decode().splitlines()
    (call,) = json.loads(line)["message"]["tool_calls"]
    assert call["function"]["name"] == "now" and call["function"]["arguments"] == told


@ARGUMENTS
def test_a_call_of_a_message_has_its_arguments(written: str, told: object) -> None:
    """Lists nested without end made an error of the whole answer."""
    events = [ToolBegin(0, "now"), ToolArguments(0, written), ToolEnd(0)]
    choice = TextDelta(0, events=events, finish_reason="stop", calls=1)
    message = MessagesRenderer("id", "model").whole([choice], cast(Generation, _Generation()))
    (block,) = json.loads(b"".join(encoded_pieces(message)))["content"]
    assert block["name"] == "now" and block["input"] == told


@pytest.mark.parametrize("cut", [False, True])
def test_the_tokens_of_a_call_keep_their_log_probabilities(tokenizer: Tokenizer, cut: bool) -> None:
    """They were dropped from streams, as a call is told whole: they wait for the next line, or the last."""
    parts: list[list[Event]] = [[Text("a")], [], [ToolBegin(0, "now")], [ToolArguments(0, "{}")]]
    parts += [[]] if cut else [[ToolEnd(0)], [Text("b")]]
    deltas = [
        TextDelta(0, events=events, shown=[ShownToken(TokenLogprobs(token, -1.0, []), token)])
        for token, events in enumerate(parts, tokenizer.encode("a")[0])
    ]
    deltas[-1].finish_reason = "length"
    shown, events = [delta.shown[0] for delta in deltas], [event for part in parts for event in part]
    generation = cast(Generation, _Generation())
    streaming, other = (OllamaChatRenderer("model", TokenNames(tokenizer), logprobs=True) for _ in range(2))
    sent = b"".join(streaming.delta(delta, generation) for delta in deltas) + streaming.closing(generation)
    lines = [json.loads(line) for line in sent.splitlines()]
    whole = other.whole([TextDelta(0, events=events, shown=shown, finish_reason="length")], generation)
    told = [entry["token"] for line in lines for entry in line.get("logprobs", [])]
    assert told == [entry.token for entry in cast(ChatPart, whole).logprobs or ()]
    assert len(told) == len(deltas)
    assert any("tool_calls" in line["message"] for line in lines) is not cut
