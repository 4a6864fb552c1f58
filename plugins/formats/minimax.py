"""MiniMax M2."""

from __future__ import annotations

from turnout.core.types.output_format import Calls, OutputFormat, XmlCall
from turnout.plugins.formats.hermes import THINK

__all__ = ["minimax_m2"]

INVOKE = '<invoke name="'


def minimax_m2() -> OutputFormat:
    """All calls in ``<minimax:tool_call>``, each as ``<invoke>`` with a ``<parameter>`` for each argument."""
    body = XmlCall(after='">', key=('<parameter name="', '">'), value=("", "</parameter>"))
    calls = Calls(
        body,
        open=INVOKE,
        close="</invoke>",
        before="<minimax:tool_call>",
        lead=INVOKE,
        after="</minimax:tool_call>",
    )
    return OutputFormat(found_by=("<minimax:tool_call>", "<invoke"), calls=calls, regions=(THINK,))
