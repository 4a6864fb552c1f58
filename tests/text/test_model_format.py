"""What a request's form and its answer's parts begin in, by the model's format."""

from __future__ import annotations

import pytest

from turnout.core.types.output_format import OutputFormat
from turnout.plugins.formats.harmony import harmony
from turnout.plugins.formats.hermes import hermes
from turnout.text.model_format import ModelFormat
from turnout.text.output.events import Reasoning, Text, merged
from turnout.text.output.tools import Tool
from turnout.text.tokenizer import Tokenizer

WELL = "<|start|>assistant<|channel|>final<|message|>Well, "


@pytest.mark.parametrize(
    ("format", "prompt", "said", "open"),
    [
        (harmony(), "<|start|>assistant", "", None),
        (harmony(), WELL, "Well, ", "<|channel|>final<|message|>"),
        (harmony(), WELL, "", None),
        (harmony(), f"{WELL}<|return|>", "Well, ", None),
        (hermes(), "<|im_start|>assistant\n<think>\n", "", "<think>"),
        (hermes(), "<|im_start|>assistant\nWell, ", "Well, ", None),
        (hermes(), "<|im_start|>assistant\n<think>\nWell, ", "<think>\nWell, ", "<think>"),
        (hermes(), "<|im_start|>assistant\n<think>\nWell, ", "Well, ", "<think>"),
        (hermes(), "<|im_start|>assistant\n<think>a</think>Well", "<think>a</think>Well", None),
        (hermes(), "<|im_start|>assistant\nThe tag <think> is", "The tag <think> is", None),
        (hermes(), "<|im_start|>user\n<think><|im_end|>\n<|im_start|>assistant\nWell", "Well", None),
    ],
)
def test_the_region_in_which_a_final_message_goes_on(
    bytewise: Tokenizer, format: OutputFormat, prompt: str, said: str, open: str | None
) -> None:
    """Of gpt-oss, the rest of a final message was taken for a header, so that clients got no text."""
    begun = ModelFormat(bytewise, format, []).begun(prompt, said)
    assert (begun and begun.open) == open


def test_a_final_message_does_not_go_on_where_a_tool_must_be_called(bytewise: Tokenizer) -> None:
    format = ModelFormat(bytewise, harmony(), [])
    assert format.begun(WELL, "Well, ", must_call=True) is None


def test_a_text_of_a_form_may_hold_a_marker(bytewise: Tokenizer) -> None:
    """It was read as a call, which the grammar of the text does not hold to its tool's schema."""
    tool = Tool("f", {"type": "object"})
    make = ModelFormat(bytewise, hermes(), []).splitter([tool], None, formed=True)
    assert make is not None
    said = '{"x": "<tool_call>{"}'
    splitter = make()
    assert merged(splitter.feed(said) + splitter.finish()) == [Text(said)]


def test_outputs_are_told_apart_by_channels_though_the_template_knows_no_tools(bytewise: Tokenizer) -> None:
    """The headers of all channels but the first were text."""
    make = ModelFormat(bytewise, harmony(), []).splitter([], None)
    assert make is not None
    said = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>hi"
    splitter = make()
    assert merged(splitter.feed(said) + splitter.finish()) == [Reasoning("hm"), Text("hi")]
