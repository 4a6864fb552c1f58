"""Google's Gemma: 3 (https://ai.google.dev/gemma/docs/capabilities/function-calling), FunctionGemma and 4."""

from __future__ import annotations

from turnout.core.types.output_format import Calls, NamedCall, Notation, OutputFormat, PythonCall, Region

__all__ = ["function_gemma", "gemma3_tool_code", "gemma4"]


def gemma3_tool_code() -> OutputFormat:
    """A call in Python, in a block of code. `pythonic` is the other form that Gemma 3 is documented with."""
    calls = Calls(PythonCall(), open="```tool_code", close="```")
    return OutputFormat(found_by=("```tool_code",), calls=calls)


def function_gemma() -> OutputFormat:
    """``call:NAME{KEY:VALUE,…}`` with strings between ``<escape>``."""
    body = NamedCall(notation=Notation(quote="<escape>", bare_keys=True))
    calls = Calls(body, open="<start_function_call>call:", close="<end_function_call>")
    return OutputFormat(found_by=("<start_function_call>", "<escape>"), calls=calls)


def gemma4() -> OutputFormat:
    """Calls as FunctionGemma's with other marks; reasoning in a channel of its own."""
    body = NamedCall(notation=Notation(quote='<|"|>', bare_keys=True))
    calls = Calls(body, open="<|tool_call>call:", close="<tool_call|>")
    thought = Region("reasoning", "<|channel>thought", "<channel|>")
    return OutputFormat(found_by=("<|tool_call>", '<|"|>'), calls=calls, regions=(thought,))
