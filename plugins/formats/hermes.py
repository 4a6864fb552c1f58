"""NousResearch's Hermes, and Qwen 2.5 and 3, which call tools as Hermes does."""

from __future__ import annotations

from turnout.core.types.output_format import Calls, JsonCall, OutputFormat, Region

__all__ = ["THINK", "hermes", "thinking"]

THINK = Region("reasoning", "<think>", "</think>")


def hermes() -> OutputFormat:
    """Calls are JSON objects in ``<tool_call>`` (https://github.com/NousResearch/Hermes-Function-Calling)."""
    calls = Calls(JsonCall(), open="<tool_call>", close="</tool_call>")
    return OutputFormat(found_by=("<tool_call>", "arguments"), calls=calls, regions=(THINK,))


def thinking() -> OutputFormat:
    """Reasoning in ``<think>``, as DeepSeek-R1 writes it, and no calls."""
    return OutputFormat(found_by=("</think>",), regions=(THINK,))
