"""What a client sees of a choice with reasoning and calls, however its tokens arrive."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnout.core.types.logprobs import TokenLogprobs
from turnout.core.types.messages import Delta
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.formats.hermes import hermes
from turnout.text.choice_text import ChoiceText, TextDelta
from turnout.text.output.events import Reasoning, Text, ToolArguments, ToolBegin, ToolEnd, merged
from turnout.text.output.reading.splitter import OutputSplitter
from turnout.text.output.tools import Tool
from turnout.text.split.one_by_one import joined
from turnout.text.split.split_text import SplitText
from turnout.text.tokenizer import Tokenizer

TOOL = Tool("f", {"type": "object", "properties": {"a": {"type": "string"}}})
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "STOP"}}\n</tool_call>'
NO_CALL = "<tool_call> STOP is no call"
PIECES = [CALL, NO_CALL, "<think>why STOP", "\n</think>\n\n", "yes ", "你🚀", "STOP", "\n", "<tool"]


def split(tokenizer: Tokenizer, content: str, sizes: list[int], *stops: str) -> TextDelta:
    """All that is told of an output that comes in deltas of so many tokens."""
    splitter = OutputSplitter(hermes(), [TOOL])
    text = SplitText(ChoiceText(tokenizer, SamplingParams(stop=stops), ()), splitter, singly=True)
    ids = tokenizer.encode(content)
    added: list[TextDelta] = []
    for size in [*sizes, len(ids)]:
        part, ids = ids[:size], ids[size:]
        scores = [TokenLogprobs(token, -1.0, []) for token in part]
        delta = Delta(request_id="r", tokens=part, logprobs=scores, finish_reason=None if ids else "length")
        added.append(text.feed(delta))
        if added[-1].finish_reason is not None:
            break
    return joined(added)


def tokens(tokenizer: Tokenizer, told: TextDelta) -> str:
    """The text of the answer's tokens."""
    return tokenizer.decode([token.logprobs.token for token in told.answered])


@settings(deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=6), st.lists(st.integers(0, 9), max_size=12), st.booleans())
def test_arrival_does_not_matter(
    bytewise: Tokenizer, content: list[str], sizes: list[int], stops: bool
) -> None:
    told, whole = (
        split(bytewise, "".join(content), cut, *(["STOP"] if stops else [])) for cut in (sizes, [])
    )
    assert merged(told.events) == merged(whole.events)
    assert told.finish_reason == whole.finish_reason and told.stop_reason == whole.stop_reason
    assert list(told.answered) == list(whole.answered)
    answer = "".join(event.text for event in told.events if isinstance(event, Text))
    assert tokens(bytewise, told) == answer  # a token is a byte, so none is of two parts


def test_a_stop_string_within_a_call_is_the_calls(bytewise: Tokenizer) -> None:
    """It cut the call open, whose arguments were no JSON then."""
    told = split(bytewise, f"Wait. {CALL}", [], "STOP", '"')
    called = [ToolBegin(0, "f"), ToolArguments(0, '{"a": "STOP"}'), ToolEnd(0)]
    assert merged(told.events) == [Text("Wait."), *called]
    assert (told.finish_reason, told.stop_reason) == ("length", None)


@pytest.mark.parametrize("before", ["yes ", f"{CALL}\n", f"{CALL} no", "<think>why", "<tool"])
def test_a_stop_string_elsewhere_ends_the_choice(bytewise: Tokenizer, before: str) -> None:
    told = split(bytewise, f"{before}STOP and more", [], "STOP")
    assert (told.finish_reason, told.stop_reason) == ("stop", "STOP")
    assert told.text == before


def test_only_the_answer_s_tokens_are_told_as_such(bytewise: Tokenizer) -> None:
    told = split(bytewise, f"<think>\nwhy\n</think>\n\nYes, 你🚀.\n{CALL}", [3, 1, 9])
    reasoning, answer, *_ = merged(told.events)
    assert reasoning == Reasoning("why") and answer == Text("Yes, 你🚀.")
    assert tokens(bytewise, told) == "Yes, 你🚀."
    assert len(told.shown) == told.token_count > len(told.answered)
