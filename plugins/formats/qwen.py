"""Qwen3-Coder, and Qwen 3.5 and later."""

from __future__ import annotations

from turnout.core.types.output_format import Calls, OutputFormat, XmlCall
from turnout.plugins.formats.hermes import THINK

__all__ = ["qwen3_coder"]


def qwen3_coder() -> OutputFormat:
    """``<function=NAME>`` in ``<tool_call>``, each argument in ``<parameter=KEY>`` on lines of its own."""
    body = XmlCall(
        before="<function=",
        after=">",
        key=("<parameter=", ">"),
        value=("", "</parameter>"),
        end="</function>",
        lines=True,
    )
    calls = Calls(body, open="<tool_call>", close="</tool_call>")
    return OutputFormat(found_by=("<tool_call>", "<function=", "<parameter="), calls=calls, regions=(THINK,))
