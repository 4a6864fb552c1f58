"""Meta's Llama 3.1 to 3.3."""

from __future__ import annotations

from turnout.core.types.output_format import Calls, JsonCall, OutputFormat

__all__ = ["llama3_json"]


def llama3_json() -> OutputFormat:
    """A message is text, or nothing but calls: ``{"name": …, "parameters": {…}}``, semicolons between."""
    calls = Calls(JsonCall(arguments="parameters"), between=";")
    return OutputFormat(found_by=("<|start_header_id|>", "parameters"), calls=calls)
