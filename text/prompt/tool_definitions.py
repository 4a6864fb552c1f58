"""The definitions of tools, in the form of OpenAI's chat API: of functions, and of tools that take a text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    field_validator,
)

from turnout.core.errors import RequestError
from turnout.text.output.custom_tools import parameters_of
from turnout.text.output.expressions import whole_expression
from turnout.text.output.tools import Tool

__all__ = ["CustomDefinition", "Function", "FunctionDefinition", "ToolDefinition"]

NAME = re.compile(r"[\w.:/-]{1,128}", re.ASCII)
MATCHES = "The whole text matches this regular expression:"


def _possible(value: str) -> str:
    if not NAME.fullmatch(value):
        raise ValueError("1 to 128 letters, digits, and _-.:/ are expected")
    return value


def _known(value: object) -> object:
    if value != "function":  # `_kind` has found the custom tools
        raise ValueError("'function' or 'custom' is expected")
    return value


Name = Annotated[str, AfterValidator(_possible)]


class Function(BaseModel):
    """A function that the model may call."""

    model_config = ConfigDict(strict=True, extra="allow")

    name: Name
    """Letters, digits, and `_-.:/`."""
    description: str | None = None
    """What it does, for the model to read."""
    parameters: dict[str, Any] | None = None
    """A JSON schema of its arguments, which are an object. Default: any object."""
    strict: bool | None = None
    """A keyword of the schema that cannot be held is refused; otherwise it holds nothing."""

    @field_validator("parameters", mode="after")
    @classmethod
    def _of_an_object(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value and value.get("type", "object") != "object":
            raise ValueError("a schema of an object is expected")
        return value


class FunctionDefinition(BaseModel):
    """A function."""

    model_config = ConfigDict(strict=True, extra="allow")

    type: Annotated[Literal["function"], BeforeValidator(_known)] = "function"
    function: Function

    @property
    def name(self) -> str:
        """What the model calls it."""
        return self.function.name

    def described(self) -> dict[str, Any]:
        """The function, as chat templates take it."""
        return self.model_dump(exclude_none=True)

    def tool(self, where: str) -> Tool:
        """The function, as a call of it is held and read. where: the tool's place."""
        parameters: Mapping[str, Any] = {"type": "object", **(self.function.parameters or {})}
        return Tool(self.name, parameters, strict=bool(self.function.strict))

    def form_place(self, where: str) -> str:
        """What a refusal of its arguments' form names. where: the tool's place."""
        return f"{where}.function.parameters"


class TextFormat(BaseModel):
    """Any text."""

    model_config = ConfigDict(strict=True)

    type: Literal["text"]


class InputGrammar(BaseModel):
    """What the whole text matches."""

    model_config = ConfigDict(strict=True)

    syntax: Literal["lark", "regex"]
    """`regex`; `lark` is refused."""
    definition: str
    """A regular expression, which the whole text matches."""


class GrammarFormat(BaseModel):
    """A text of a form."""

    model_config = ConfigDict(strict=True)

    type: Literal["grammar"]
    grammar: InputGrammar


class CustomTool(BaseModel):
    """A tool that takes a text, not JSON."""

    model_config = ConfigDict(strict=True, extra="allow")

    name: Name
    """Letters, digits, and `_-.:/`."""
    description: str | None = None
    """What it does, for the model to read."""
    format: Annotated[TextFormat | GrammarFormat, Field(discriminator="type")] | None = None
    """What its input is: `{"type": "text"}`, or `{"type": "grammar", "grammar": {"syntax": "regex",
    "definition": …}}`. Default: any text."""


class CustomDefinition(BaseModel):
    """A custom tool. The model is told of it as a function with one argument, which is the text."""

    model_config = ConfigDict(strict=True, extra="allow")

    type: Literal["custom"]
    custom: CustomTool

    @property
    def name(self) -> str:
        """What the model calls it."""
        return self.custom.name

    def described(self) -> dict[str, Any]:
        """The function, as chat templates take it."""
        grammar, purpose = self._grammar, self.custom.description
        told = {} if grammar is None else {"description": f"{MATCHES} {grammar.definition}"}
        function = {"name": self.name} | ({} if purpose is None else {"description": purpose})
        return {"type": "function", "function": {**function, "parameters": parameters_of(**told)}}

    def tool(self, where: str) -> Tool:
        """The function, as a call of it is held and read. Raises RequestError for a form that cannot be held.

        where: the tool's place.
        """
        if (grammar := self._grammar) is None:
            return Tool(self.name, parameters_of(), custom=True)
        if self.pattern is None:
            place = self.form_place(where)
            raise RequestError(
                f"{place} of {self.name!r}: the regular expression {grammar.definition!r:.200} cannot be "
                "held, as with looking around, borders of words, references, ^ or $ within, or a parenthesis "
                'missing; give one without, or the format {"type": "text"}',
                place,
            )
        return Tool(self.name, parameters_of(pattern=self.pattern), strict=True, custom=True)

    @cached_property
    def pattern(self) -> str | None:
        """What a schema says of the text; None: its form cannot be held. It takes time for long ones."""
        grammar = self._grammar
        return None if grammar is None else whole_expression(grammar.definition)

    def form_place(self, where: str) -> str:
        """What a refusal of the text's form names. where: the tool's place."""
        return f"{where}.custom" if self._grammar is None else f"{where}.custom.format.grammar.definition"

    def check(self, where: str) -> None:
        """Raises RequestError for a syntax that is not known here. where: the tool's place."""
        grammar = self._grammar
        if grammar is not None and grammar.syntax == "lark":
            place = f"{where}.custom.format.grammar.syntax"
            raise RequestError(
                f"{place} of {self.name!r}: 'lark' is not supported; give a 'regex', or the format "
                '{"type": "text"} and tell of the form in the description',
                place,
            )

    @property
    def _grammar(self) -> InputGrammar | None:
        form = self.custom.format
        return form.grammar if isinstance(form, GrammarFormat) else None


def _kind(tool: object) -> str:
    """Which definition a tool is to be read as; a function's type may be left out."""
    kind = tool.get("type", "function") if isinstance(tool, Mapping) else getattr(tool, "type", None)
    return "custom" if kind == "custom" else "function"


ToolDefinition = Annotated[
    Annotated[FunctionDefinition, Tag("function")] | Annotated[CustomDefinition, Tag("custom")],
    Discriminator(_kind),
]
