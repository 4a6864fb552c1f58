"""An answer in Ollama's API is a line of JSON, whatever the model has written as a call's arguments."""

from __future__ import annotations

import json
from typing import cast

import pytest

from turnout.server.generation.generation import Generation
from turnout.server.renderers.ollama import OllamaChatRenderer
from turnout.server.renderers.token_names import TokenNames
from turnout.text.choice_text import TextDelta
from turnout.text.output.events import ToolArguments, ToolBegin, ToolEnd


class _Generation:
    splitter = object()


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ('{"a": 1}', {"a": 1}),
        ('{\n  "a": [1.5,\r\n 12345678901234567890]\n}', {"a": [1.5, 12345678901234567890]}),
        ('{"a": "é 你"}', {"a": "é 你"}),
        ("", {}),
        ('{"a" 1}', {}),
    ],
)
def test_a_call_is_on_one_line(written: str, told: object) -> None:
    renderer = OllamaChatRenderer("model", cast(TokenNames, None), logprobs=False)
    events = [ToolBegin(0, "now"), ToolArguments(0, written), ToolEnd(0)]
    sent = renderer.delta(TextDelta(0, events=events), cast(Generation, _Generation()))
    (line,) = sent.decode().splitlines()
    (call,) = json.loads(line)["message"]["tool_calls"]
    assert call["function"]["name"] == "now" and call["function"]["arguments"] == told
