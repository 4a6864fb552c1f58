"""Mistral's models."""

from __future__ import annotations

from turnout.core.types.output_format import Calls, JsonCall, NamedCall, OutputFormat, Region

__all__ = ["mistral", "mistral_list"]

THINK = Region("reasoning", "[THINK]", "[/THINK]")


def mistral() -> OutputFormat:
    """Each call is ``[TOOL_CALLS]name[ARGS]{…}``, since version 11 of Mistral's tokenizer."""
    calls = Calls(NamedCall(("[ARGS]",)), open="[TOOL_CALLS]")
    return OutputFormat(found_by=("[TOOL_CALLS]", "[ARGS]"), calls=calls, regions=(THINK,))


def mistral_list() -> OutputFormat:
    """All calls are one list, ``[TOOL_CALLS] [{"name": …, "arguments": {…}}, …]``: earlier versions."""
    calls = Calls(JsonCall(), before="[TOOL_CALLS]", lead="[", between=",", after="]")
    return OutputFormat(found_by=("[TOOL_CALLS]",), calls=calls)
