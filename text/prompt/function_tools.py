"""Python functions as tools: described to a model by their signature, type hints and docstring."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from turnout.core.errors import RequestError

__all__ = ["Offer", "described", "function_tool"]

Offer = Mapping[str, Any] | Callable[..., Any]
"""A tool, in OpenAI's form or as a function."""


def described(tools: Iterable[Offer]) -> list[dict[str, Any]]:
    """The tools in OpenAI's form. Raises RequestError for what is no tool, or does not tell enough."""
    if isinstance(tools, str | bytes | Mapping) or not isinstance(tools, Iterable):
        raise RequestError(f"tools is a list of functions, or of OpenAI's form, not {tools!r:.80}", "tools")
    return [_described(tool) for tool in tools]


def _described(tool: Offer) -> dict[str, Any]:
    if isinstance(tool, Mapping):
        return dict(tool)
    if not callable(tool):
        raise RequestError(f"a tool is a function, or has OpenAI's form, not {tool!r:.80}", "tools")
    return function_tool(tool)


def function_tool(function: Callable[..., Any]) -> dict[str, Any]:
    """A function as a tool, as transformers describes it. Raises RequestError.

    Each argument needs a type hint, and a line under ``Args:`` in the docstring.
    """
    from transformers.utils.chat_template_utils import (  # takes a second
        DocstringParsingException,
        TypeHintParsingException,
        get_json_schema,
    )

    try:
        tool: dict[str, Any] = get_json_schema(function)
    except (DocstringParsingException, TypeHintParsingException, ValueError, TypeError, NameError) as error:
        name = getattr(function, "__name__", repr(function))
        raise RequestError(
            f"the function {name} cannot become a tool: {error}; give each argument a type hint, and a line "
            "under 'Args:' in the docstring",
            "tools",
        ) from None
    told = tool["function"]
    told.pop("return", None)  # a template may show it, but no API has it
    told["parameters"].setdefault("additionalProperties", False)  # a function takes no others
    return tool
