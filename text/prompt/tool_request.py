"""The fields by which a conversation offers tools, in OpenAI's form: of requests, and of `LLM.chat`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from turnout.core import limits
from turnout.core.errors import RequestError
from turnout.text.output.grammar.call_grammar import Wanted
from turnout.text.output.grammar.faulty_part import tool_of_rule
from turnout.text.output.tools import Tool
from turnout.text.prompt.tool_definitions import (
    CustomDefinition,
    Function,
    FunctionDefinition,
    ToolDefinition,
)

__all__ = ["ToolRequest", "offered_tools"]

MODES = ("auto", "required")
FastTools = Annotated[list[ToolDefinition], Field(fail_fast=True)]


class Named(BaseModel):
    """The name of a tool."""

    model_config = ConfigDict(strict=True)

    name: str


class NamedFunction(BaseModel):
    """A function that is to be called."""

    model_config = ConfigDict(strict=True)

    type: Literal["function"] = "function"
    function: Named

    @property
    def name(self) -> str:
        return self.function.name


class NamedCustom(BaseModel):
    """A custom tool that is to be called."""

    model_config = ConfigDict(strict=True)

    type: Literal["custom"]
    custom: Named

    @property
    def name(self) -> str:
        return self.custom.name


NamedTool = NamedFunction | NamedCustom


class AllowedTools(BaseModel):
    """The tools that may be called, of those that the model is told of."""

    model_config = ConfigDict(strict=True)

    mode: str
    """`auto`, or `required`: at least one of them is called."""
    tools: Annotated[list[NamedTool], Field(fail_fast=True)]


class AllowedChoice(BaseModel):
    """A choice among some of the tools."""

    model_config = ConfigDict(strict=True)

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


class ToolRequest(BaseModel):
    """Tools that the model may call, and whether it must."""

    tools: FastTools | None = None
    """[Functions and custom tools that the model may call](http-api.md#tools)."""
    tool_choice: Literal["none", "auto", "required"] | NamedTool | AllowedChoice | None = None
    """`auto`: the model chooses; `none`: no tool; `required`: at least one;
    `{"type": "function", "function": {"name": …}}`, or `custom` in both places: this one; or `{"type":
    "allowed_tools", "allowed_tools": {"mode": "auto", "tools": […]}}`: these alone, by the mode `auto` or
    `required`. Default: `auto`."""
    parallel_tool_calls: bool | None = None
    """Whether an answer may have several calls. Default: true."""
    functions: Annotated[list[Function], Field(fail_fast=True)] | None = None
    """OpenAI's older form of `tools`."""
    function_call: Literal["none", "auto"] | Named | None = None
    """OpenAI's older form of `tool_choice`."""

    @model_validator(mode="after")
    def _tools(self) -> Self:
        if self.functions is not None:
            if self.tools is not None:
                raise RequestError("functions is the older form of tools; give one", "functions")
            self.tools = [FunctionDefinition(function=function) for function in self.functions]
        if self.function_call is not None and self.tool_choice is None:
            call = self.function_call
            self.tool_choice = call if isinstance(call, str) else NamedFunction(function=call)
        names = [tool.name for tool in self.tools or ()]
        if len(names) > limits.TOOLS.most:
            raise RequestError(
                f"there are {len(names):,} tools; at most {limits.TOOLS.whole} are taken", "tools"
            )
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise RequestError(f"two tools are called {twice!r}; names must differ", "tools")
        for number, tool in enumerate(self.tools or ()):
            if isinstance(tool, CustomDefinition):
                tool.check(f"tools[{number}]")
        self._check_choice(names)
        return self

    def _check_choice(self, names: Sequence[str]) -> None:
        choice = self.tool_choice
        if isinstance(choice, AllowedChoice) and (mode := choice.allowed_tools.mode) not in MODES:
            raise RequestError(
                f"tool_choice.allowed_tools.mode should be 'auto' or 'required', not {mode!r}", "tool_choice"
            )
        allowed = set(names) if self._named is None else self._named
        if unknown := allowed.difference(names):
            raise RequestError(
                f"tool_choice names {min(unknown)!r}, which is not among the tools", "tool_choice"
            )
        if self.must_call and not allowed:
            raise RequestError("tool_choice is 'required', but there are no tools", "tool_choice")

    @property
    def _named(self) -> set[str] | None:
        """The names of the tools that may be called; None: all."""
        match self.tool_choice:
            case NamedFunction(name=name) | NamedCustom(name=name):
                return {name}
            case AllowedChoice(allowed_tools=allowed):
                return {tool.name for tool in allowed.tools}
        return None

    @property
    def offered(self) -> list[ToolDefinition]:
        """The tools that the model is told of."""
        return [] if self.tool_choice == "none" else self.tools or []

    def described(self) -> list[dict[str, Any]]:
        """The tools that the model is told of, as chat templates take them."""
        return [tool.described() for tool in self.offered]

    def callable_tools(self) -> list[Tool]:
        """The tools that an answer may call. Raises RequestError for one whose form cannot be held."""
        named = self._named
        return [
            each.tool(f"tools[{number}]")
            for number, each in enumerate(self.offered)
            if named is None or each.name in named
        ]

    @contextmanager
    def tools_named(self) -> Iterator[None]:
        """Make errors raised in the block name the tool whose schema the engine refuses."""
        try:
            yield
        except RequestError as error:
            number = tool_of_rule(error.param or "")
            if number is not None and number < len(callable := self.callable_tools()):
                name = callable[number].name
                tools = self.tools or []
                index = [tool.name for tool in tools].index(name)
                place = tools[index].form_place(f"tools[{index}]")
                error.param = place if self.functions is None else f"functions[{index}].parameters"
                error.args = (f"{error.param} of {name!r}: {error}",)
            raise

    @property
    def wanted(self) -> Wanted:
        """What an answer may and must call."""
        return Wanted(self.callable_tools(), "required" if self.must_call else "auto", not self.one_call)

    @property
    def must_call(self) -> bool:
        """Whether an answer without a call is not wanted."""
        choice = self.tool_choice
        mode = choice.allowed_tools.mode if isinstance(choice, AllowedChoice) else choice
        return mode == "required" or isinstance(choice, NamedTool)

    @property
    def one_call(self) -> bool:
        """Whether at most one call is wanted."""
        return self.parallel_tool_calls is False or isinstance(self.tool_choice, NamedTool)


def offered_tools(tools: Sequence[Mapping[str, Any]] | None, choice: object) -> ToolRequest:
    """What `LLM.chat` is given, checked as a request's. Raises RequestError.

    choice: a request's ``tool_choice``, or the name of the tool that is to be called.
    """
    if isinstance(choice, str) and choice not in ("none", "auto", "required"):
        choice = {"type": "function", "function": {"name": choice}}
    try:
        return ToolRequest.model_validate({"tools": tools, "tool_choice": choice})
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
        place = list(problem["loc"])
        if place[:1] == ["tools"]:
            del place[2:3]  # which kind of tool it was read as
        field = ".".join(map(str, place))
        raise RequestError(f"{field}: {problem['msg'].removeprefix('Value error, ')}", field) from None
