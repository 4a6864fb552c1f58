"""Functions of a Python file as tools: described to the model, and run here."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import json
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from turnout.cli.chat.answer import Call
from turnout.core.errors import ConfigError, RequestError
from turnout.text.prompt.function_tools import described

__all__ = ["Toolbox", "load_tools"]

MODULE = "turnout_chat_tools"
MOST_RESULT = 32_000
"""Characters of a result that go back: a conversation has to fit the model."""

Function = Callable[..., Any]


@dataclass(frozen=True)
class Toolbox:
    """The functions, by name."""

    functions: Mapping[str, Function]
    described: list[dict[str, Any]]
    """As OpenAI's API has them."""

    def run(self, call: Call) -> str:
        """What a call gives, for the model to read: a result, or what went wrong."""
        function = self.functions.get(call.name)
        if function is None:
            return f"Error: there is no function {call.name!r}; there are {', '.join(self.functions)}"
        try:
            arguments = json.loads(call.arguments or "{}")
        except (ValueError, RecursionError):
            return "Error: the arguments are not complete"
        try:
            inspect.signature(function).bind(**arguments)
        except TypeError as error:
            return f"Error: {error}"
        return _result(function, arguments)


def load_tools(file: Path) -> Toolbox:
    """The public functions that a file defines, as tools. Raises ConfigError."""
    module = _loaded(file)
    functions = {
        name: value
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == MODULE and not name.startswith("_")
    }
    if not functions:
        raise ConfigError(f"{file} defines no functions without a leading underscore, so there are no tools")
    try:
        return Toolbox(functions, described(list(functions.values())))
    except RequestError as error:
        raise ConfigError(f"{file}: {error}") from None


def _loaded(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(MODULE, file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{file} is not a Python file; its name should end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module  # type hints are looked up there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        where = [
            frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)
        ]
        line = f", line {where[-1]}" if where else ""
        raise ConfigError(f"{file}{line}: {type(error).__name__}: {error}") from None
    return module


def _result(function: Function, arguments: Mapping[str, Any]) -> str:
    try:
        value = function(**arguments)
        if inspect.iscoroutine(value):
            value = asyncio.run(value)
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        text.encode()  # half of a surrogate pair cannot be sent
    except KeyboardInterrupt:  # the user stops the call
        raise
    except BaseException as error:  # `sys.exit`, too, or a value that JSON cannot write
        return f"Error: {type(error).__name__}: {error}"
    return text if len(text) <= MOST_RESULT else f"{text[:MOST_RESULT]}… (cut off)"
