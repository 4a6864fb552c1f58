"""Events of text alone are bytes around the text, made once: the same as if each were encoded whole."""

from __future__ import annotations

from typing import cast

import msgspec
import pytest

from turnout.server.generation.generation import Generation
from turnout.server.renderers.chat import ChatRenderer
from turnout.server.renderers.completions import CompletionRenderer
from turnout.server.renderers.openai import MARK, OpenAIRenderer, ResponseOptions
from turnout.server.renderers.token_names import TokenNames
from turnout.text.choice_text import TextDelta


class _Generation:
    splitter = None


GENERATION = cast(Generation, _Generation())
TEXTS = ["", " the", '"\\\n\t\x00', "é 你 \U0001f600", "</script>", MARK, f'"{MARK}"', "\x7f\u2028"]


def renderers(model: str, usage: bool) -> list[OpenAIRenderer]:
    head = ("id-1", model, 1, "fp", cast(TokenNames, None))
    options = ResponseOptions(logprobs=False, usage=usage, usage_in_chunks=False, token_ids=False)
    return [
        CompletionRenderer(*head, options, 0, False, ["", "an echo"]),
        ChatRenderer(*head, options),
    ]


@pytest.mark.parametrize("usage", [False, True])
@pytest.mark.parametrize("model", ["a model", MARK, '"model"'])
def test_text_in_a_frame_is_the_event_encoded_whole(model: str, usage: bool) -> None:
    for renderer in renderers(model, usage):
        for index in (0, 1):
            for text in TEXTS:
                chunk = renderer._chunk(renderer._of_text(index, text), 1, GENERATION)
                found = renderer.delta(TextDelta(index, text, [5], token_count=1), GENERATION)
                assert found == b"data: " + msgspec.json.encode(chunk) + b"\n\n"
        assert set(renderer.frames) == {0, 1}


@pytest.mark.parametrize("option", ["logprobs", "usage_in_chunks", "token_ids"])
def test_events_that_differ_in_more_than_text_have_no_frame(option: str) -> None:
    fields = dict.fromkeys(("logprobs", "usage", "usage_in_chunks", "token_ids"), False)
    options = ResponseOptions(**fields | {option: True, "usage": option == "usage_in_chunks"})
    renderer = ChatRenderer("id-1", "model", 1, "fp", cast(TokenNames, None), options)
    assert renderer.frame(0, GENERATION) is None
