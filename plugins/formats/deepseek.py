"""DeepSeek V3, R1 and V3.1."""

from __future__ import annotations

from turnout.core.types.output_format import Calls, NamedCall, OutputFormat
from turnout.plugins.formats.hermes import THINK

__all__ = ["deepseek_v3", "deepseek_v31"]

BEGIN, END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL, CALL_END, SEPARATOR = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"


def deepseek_v31() -> OutputFormat:
    """Name and arguments with a separator between them."""
    calls = Calls(NamedCall((SEPARATOR,)), open=CALL, close=CALL_END, before=BEGIN, after=END)
    return OutputFormat(found_by=(BEGIN, SEPARATOR), calls=calls, regions=(THINK,))


def deepseek_v3() -> OutputFormat:
    """The kind, ``function``, then the name, and the arguments in a block of code."""
    calls = Calls(
        NamedCall(("\n```json\n",)),
        open=CALL + "function" + SEPARATOR,
        close="\n```" + CALL_END,
        before=BEGIN,
        after=END,
    )
    return OutputFormat(found_by=(BEGIN, SEPARATOR, "```json"), calls=calls, regions=(THINK,))
