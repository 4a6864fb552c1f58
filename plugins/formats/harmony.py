"""OpenAI's gpt-oss (https://cookbook.openai.com/articles/openai-harmony)."""

from __future__ import annotations

from turnout.core.types.output_format import Calls, NamedCall, OutputFormat, Region

__all__ = ["harmony"]

CONTENT_TYPES = ("", " <|constrain|>json", "<|constrain|>json", " json", " <|constrain|>JSON")
"""What models write between the name of the channel of an answer and the answer."""


def harmony() -> OutputFormat:
    """Messages in channels: ``analysis`` is reasoning, ``final`` the answer, ``commentary`` calls tools."""
    constrained = "<|constrain|>json<|message|>"
    calls = Calls(
        NamedCall((f" {constrained}", constrained, " json<|message|>", " code<|message|>", "<|message|>")),
        open="<|channel|>commentary to=functions.",
        close="<|call|>",
    )
    regions = (
        Region("reasoning", "<|channel|>analysis<|message|>", "<|end|>"),
        Region("text", "<|channel|>commentary<|message|>", "<|end|>"),
        *(Region("text", f"<|channel|>final{kind}<|message|>", "<|return|>") for kind in CONTENT_TYPES),
    )
    return OutputFormat(
        # The published template itself writes calls without <|constrain|>.
        found_by=("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
        calls=calls,
        regions=regions,
        outside="skip",
        between="<|start|>assistant",
    )
