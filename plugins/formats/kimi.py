"""Moonshot's Kimi K2."""

from __future__ import annotations

from turnout.core.types.output_format import Calls, NamedCall, OutputFormat
from turnout.plugins.formats.hermes import THINK

__all__ = ["kimi_k2"]


def kimi_k2() -> OutputFormat:
    """Calls are numbered: ``functions.NAME:0``, a separator, and the arguments."""
    calls = Calls(
        NamedCall(("<|tool_call_argument_begin|>",), number=":"),
        open="<|tool_call_begin|>functions.",
        close="<|tool_call_end|>",
        before="<|tool_calls_section_begin|>",
        after="<|tool_calls_section_end|>",
    )
    found_by = ("<|tool_calls_section_begin|>", "<|tool_call_argument_begin|>")
    return OutputFormat(found_by=found_by, calls=calls, regions=(THINK,))
