"""The functions that a request for a response offers: its own, and those of its namespaces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from turnout.core.errors import RequestError

__all__ = ["OfferedFunction", "check_tools", "is_offered", "name_for_model", "offered_functions"]

Item = dict[str, Any]
FIELDS = ("name", "description", "parameters", "strict")
KINDS = ("function", "namespace")


class OfferedFunction(NamedTuple):
    """A function that the model may call."""

    where: str
    """Its place in the request, such as `tools[2].tools[0]`."""
    name: str
    namespace: Item | None
    """The namespace that it stands in."""
    given: Item
    """The function as it was given."""

    @property
    def full_name(self) -> str:
        """What the model calls it."""
        return name_for_model(self.name, None if self.namespace is None else self.namespace["name"])

    def for_chat(self) -> Item:
        """The function as a chat request has it: what its namespace is for stands before what it is for."""
        fields = {name: self.given.get(name) for name in FIELDS}
        if self.namespace is not None:
            purpose = filter(None, (self.namespace.get("description"), fields["description"]))
            fields |= {"name": self.full_name, "description": "\n\n".join(purpose) or None}
        return fields


def check_tools(tools: Iterable[Item]) -> None:
    """Raises RequestError for custom tools, and for namespaces that are none.

    Custom tools run in the client, which would wait in vain for calls of one that is left out.
    """
    for number, tool in enumerate(tools):
        _check_type(f"tools[{number}]", tool)
        if tool.get("type") == "namespace":
            _check_namespace(f"tools[{number}]", tool)


def is_offered(tool: Item) -> bool:
    """Whether the model is told of a tool; those of other types run on OpenAI's servers."""
    return tool.get("type") in KINDS


def offered_functions(tools: Iterable[Item]) -> Iterator[OfferedFunction]:
    """The functions of checked tools, in order."""
    for number, tool in enumerate(tools):
        where = f"tools[{number}]"
        if tool.get("type") == "function":
            yield OfferedFunction(where, str(tool.get("name")), None, tool)
        elif tool.get("type") == "namespace":
            for inner, given in enumerate(tool["tools"]):
                if given.get("type") == "function":
                    yield OfferedFunction(f"{where}.tools[{inner}]", given["name"], tool, given)


def name_for_model(name: str, namespace: str | None) -> str:
    """What the model calls a function of a namespace: its template knows names alone."""
    if namespace is None:
        return name
    return f"{namespace}{'' if namespace.endswith('_') else '__'}{name}"


def _check_type(where: str, tool: Mapping[str, Any]) -> None:
    if tool.get("type") == "custom":
        field = f"{where}.type"
        raise RequestError(f"{field}: 'custom' is not supported; give the tool as a function", field)


def _check_namespace(where: str, tool: Item) -> None:
    _check_texts(where, tool)
    inside = tool.get("tools")
    if not isinstance(inside, list) or not all(isinstance(each, dict) for each in inside):
        raise RequestError(f"{where}.tools should be a list of functions", f"{where}.tools")
    for number, given in enumerate(inside):
        _check_type(f"{where}.tools[{number}]", given)
        if given.get("type") == "function":
            _check_texts(f"{where}.tools[{number}]", given)


def _check_texts(where: str, tool: Item) -> None:
    if not isinstance(tool.get("name"), str) or not tool["name"]:
        raise RequestError(f"{where}.name should be a text", f"{where}.name")
    if not isinstance(tool.get("description"), str | None):
        raise RequestError(f"{where}.description should be a text", f"{where}.description")
