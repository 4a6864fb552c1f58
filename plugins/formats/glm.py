"""Z.ai's GLM 4.5 and later."""

from __future__ import annotations

from turnout.core.types.output_format import Calls, OutputFormat, XmlCall
from turnout.plugins.formats.hermes import THINK

__all__ = ["glm45"]


def glm45() -> OutputFormat:
    """The name in ``<tool_call>``, then each argument's key and value in tags of their own."""
    body = XmlCall(after="\n", key=("<arg_key>", "</arg_key>"), value=("<arg_value>", "</arg_value>"))
    calls = Calls(body, open="<tool_call>", close="</tool_call>")
    return OutputFormat(found_by=("<tool_call>", "<arg_key>", "<arg_value>"), calls=calls, regions=(THINK,))
