"""Meta's Llama 3.1 to 4, and the list of calls in Python that others write, too."""

from __future__ import annotations

from turnout.core.types.output_format import Calls, JsonCall, OutputFormat, PythonCall

__all__ = ["llama3_json", "llama4_json", "llama4_pythonic", "pythonic"]

PYTHON_MARKS = ("<|python_start|>", "<|python_end|>")


def llama3_json() -> OutputFormat:
    """A message is text, or nothing but calls: ``{"name": …, "parameters": {…}}``, semicolons between."""
    calls = Calls(JsonCall(arguments="parameters"), between=";")
    return OutputFormat(found_by=("<|start_header_id|>", "parameters"), calls=calls)


def llama4_json() -> OutputFormat:
    """Llama 4's calls in JSON: as `llama3-json`, or between special tokens."""
    calls = Calls(JsonCall(arguments="parameters"), between=";", around=PYTHON_MARKS)
    return OutputFormat(found_by=("<|header_start|>", "parameters"), calls=calls)


def pythonic() -> OutputFormat:
    """Llama 3.2's and Gemma 3's: a message is text, or a list of calls, ``[f(a=1), g(b="x")]``."""
    calls = Calls(PythonCall(), lead="[", between=",", after="]")
    return OutputFormat(found_by=("[func_name1(params_name1=params_value1",), calls=calls)


def llama4_pythonic() -> OutputFormat:
    """Llama 4's calls in Python: as `pythonic`, or between special tokens."""
    calls = Calls(PythonCall(), lead="[", between=",", after="]", around=PYTHON_MARKS)
    return OutputFormat(found_by=("<|header_start|>", "[func_name1(param1=value1"), calls=calls)
