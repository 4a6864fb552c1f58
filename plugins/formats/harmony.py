"""OpenAI's gpt-oss (https://cookbook.openai.com/articles/openai-harmony)."""

from __future__ import annotations

from turnout.core.types.output_format import Calls, NamedCall, OutputFormat, Region

__all__ = ["harmony"]


def harmony() -> OutputFormat:
    """Messages in channels: ``analysis`` is reasoning, ``final`` the answer, ``commentary`` calls tools."""
    calls = Calls(
        NamedCall((" <|constrain|>json<|message|>", "<|constrain|>json<|message|>", "<|message|>")),
        open="<|channel|>commentary to=functions.",
        close="<|call|>",
    )
    regions = (
        Region("reasoning", "<|channel|>analysis<|message|>", "<|end|>"),
        Region("text", "<|channel|>commentary<|message|>", "<|end|>"),
        Region("text", "<|channel|>final<|message|>", "<|return|>"),
    )
    return OutputFormat(
        found_by=("<|channel|>", "<|constrain|>"),
        calls=calls,
        regions=regions,
        outside="skip",
        between="<|start|>assistant",
    )
