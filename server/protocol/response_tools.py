"""What a request for a response offers to call: its own functions and custom tools, and its namespaces'."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from turnout.core.errors import RequestError

__all__ = [
    "CALLABLE",
    "OfferedTool",
    "check_tools",
    "is_offered",
    "name_for_model",
    "named_for_chat",
    "offered_tools",
]

Item = dict[str, Any]
FIELDS = {
    "function": ("name", "description", "parameters", "strict"),
    "custom": ("name", "description", "format"),
}
CALLABLE = ("function", "custom")
KINDS = (*CALLABLE, "namespace")


class OfferedTool(NamedTuple):
    """A function, or a custom tool, that the model may call."""

    where: str
    """Its place in the request, such as `tools[2].tools[0]`."""
    name: str
    namespace: Item | None
    """The namespace that it stands in."""
    given: Item
    """The tool as it was given."""

    @property
    def full_name(self) -> str:
        """What the model calls it."""
        return name_for_model(self.name, None if self.namespace is None else self.namespace["name"])

    @property
    def kind(self) -> str:
        """`function` or `custom`."""
        return str(self.given["type"])

    def for_chat(self) -> Item:
        """The tool as a chat request has it: what its namespace is for stands before what it is for."""
        fields = {name: self.given.get(name) for name in FIELDS[self.kind]}
        if self.kind == "custom":
            fields["format"] = _format_for_chat(fields["format"])
        if self.namespace is not None:
            purpose = filter(None, (self.namespace.get("description"), fields["description"]))
            fields |= {"name": self.full_name, "description": "\n\n".join(purpose) or None}
        return {"type": self.kind, self.kind: fields}


def check_tools(tools: Iterable[Item]) -> None:
    """Raises RequestError for namespaces that are none."""
    for number, tool in enumerate(tools):
        if tool.get("type") == "namespace":
            _check_namespace(f"tools[{number}]", tool)


def is_offered(tool: Item) -> bool:
    """Whether the model is told of a tool; those of other types run on OpenAI's servers."""
    return tool.get("type") in KINDS


def offered_tools(tools: Iterable[Item]) -> Iterator[OfferedTool]:
    """The functions and custom tools of checked tools, in order."""
    for number, tool in enumerate(tools):
        where = f"tools[{number}]"
        if tool.get("type") in CALLABLE:
            yield OfferedTool(where, str(tool.get("name")), None, tool)
        elif tool.get("type") == "namespace":
            for inner, given in enumerate(tool["tools"]):
                if given.get("type") in CALLABLE:
                    yield OfferedTool(f"{where}.tools[{inner}]", given["name"], tool, given)


def name_for_model(name: str, namespace: str | None) -> str:
    """What the model calls a tool of a namespace: its template knows names alone."""
    if namespace is None:
        return name
    return f"{namespace}{'' if namespace.endswith('_') else '__'}{name}"


def named_for_chat(kind: str, name: str) -> Item:
    """A tool as a chat request names it."""
    return {"type": kind, kind: {"name": name}}


def _format_for_chat(format: object) -> object:
    if not isinstance(format, Mapping) or format.get("type") != "grammar":
        return format
    return {"type": "grammar", "grammar": {key: value for key, value in format.items() if key != "type"}}


def _check_namespace(where: str, tool: Item) -> None:
    _check_texts(where, tool)
    inside = tool.get("tools")
    if not isinstance(inside, list) or not all(isinstance(each, dict) for each in inside):
        raise RequestError(f"{where}.tools should be a list of tools", f"{where}.tools")
    for number, given in enumerate(inside):
        if given.get("type") in CALLABLE:
            _check_texts(f"{where}.tools[{number}]", given)


def _check_texts(where: str, tool: Item) -> None:
    if not isinstance(tool.get("name"), str) or not tool["name"]:
        raise RequestError(f"{where}.name should be a text", f"{where}.name")
    if not isinstance(tool.get("description"), str | None):
        raise RequestError(f"{where}.description should be a text", f"{where}.description")
