"""The requests of Ollama's ``/api/chat`` and ``/api/generate``, and what they mean as requests of ours."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from turnout.core.errors import RequestError
from turnout.server.protocol.base import FailFastList
from turnout.server.protocol.chat import ChatRequest
from turnout.server.protocol.completions import PlainPrompt
from turnout.server.protocol.ollama.keep_alive import KeepAlive
from turnout.server.protocol.ollama.options import Options
from turnout.server.protocol.token_ids import TokenIds

__all__ = ["ChatOfOllama", "OllamaChat", "OllamaGenerate", "OllamaRequest", "PromptOfOllama", "ShowRequest"]

Fields = dict[str, Any]
LEVELS = ("low", "medium", "high", "max")


NAMES = {
    **{name: f"options.{name}" for name in ("temperature", "top_k", "top_p", "min_p", "seed", "stop")},
    **{name: f"options.{name}" for name in ("presence_penalty", "frequency_penalty")},
    "max_tokens": "options.num_predict",
    "repetition_penalty": "options.repeat_penalty",
    "response_format": "format",
}
"""Ollama's names of our fields."""


class ChatOfOllama(ChatRequest):
    """The chat request that a request of Ollama's means."""

    FIELDS: ClassVar[Mapping[str, str]] = {**ChatRequest.FIELDS, **NAMES}


class PromptOfOllama(PlainPrompt):
    """The completion that a request of Ollama's means."""

    FIELDS: ClassVar[Mapping[str, str]] = {**PlainPrompt.FIELDS, **NAMES, "logprobs": "top_logprobs"}


class _Lenient(BaseModel):
    """Fields that are not known are ignored, as Ollama's clients expect."""

    model_config = ConfigDict(strict=True, extra="ignore")


def _form(value: object) -> object:
    """The form of the text: nothing, ``"json"``, or a schema. A schema may come as JSON."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            raise ValueError("'json' or a JSON schema is expected") from None
    return value


class OllamaRequest(_Lenient):
    """What requests for text have in common."""

    model: str
    """The served model's name, with or without ``:latest``."""
    stream: bool = True
    """Answer in pieces."""
    format: Annotated[Literal["", "json"] | dict[str, Any] | None, BeforeValidator(_form)] = None
    """The form of the text."""
    options: Options = Field(default_factory=Options)
    """How to generate."""
    keep_alive: KeepAlive = None
    """How long the model stays loaded when it is idle, where it is [loaded on
    demand](../how-to/serve.md#load-models-on-demand); others stay."""
    think: bool | str | None = None
    """Whether the model reasons first, or how much."""
    logprobs: bool | None = None
    """Log-probabilities of the chosen tokens."""
    top_logprobs: int | None = None
    """And of this many of the most likely."""

    def common_fields(self) -> Fields:
        """The fields of a chat or a completion. Raises RequestError."""
        return {
            **self.options.fields(),
            "stream": self.stream,
            "response_format": self._response_format(),
        }

    def template_variables(self) -> Fields | None:
        """Variables for the chat template. Raises RequestError."""
        if self.think is None or self.think == "":
            return None
        if isinstance(self.think, bool):
            return {"enable_thinking": self.think}
        if self.think not in LEVELS:
            raise RequestError(f"think must be true, false or one of {', '.join(LEVELS)}", "think")
        return {"enable_thinking": True, "reasoning_effort": self.think}

    def _response_format(self) -> Fields | None:
        if not self.format:
            return None
        if self.format == "json":
            return {"type": "json_object"}
        return {"type": "json_schema", "json_schema": {"name": "format", "schema": self.format}}


class CalledFunction(_Lenient):
    """The function of an earlier call."""

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class EarlierCall(_Lenient):
    """An earlier tool call."""

    id: str | None = None
    function: CalledFunction


class OllamaMessage(_Lenient):
    """A message of a conversation."""

    role: str
    content: str | None = None
    thinking: str | None = None
    images: list[Any] | None = None
    tool_calls: list[EarlierCall] | None = None
    tool_name: str | None = None
    """Of a tool's result: which tool."""
    tool_call_id: str | None = None

    def chat_fields(self, number: int) -> Fields:
        """The message as chat has it. Raises RequestError for images."""
        _refuse_images(self.images, f"messages[{number}].images")
        fields: Fields = {"role": self.role, "content": self.content or ""}
        if self.thinking:
            fields["reasoning_content"] = self.thinking
        if self.tool_calls:
            fields["tool_calls"] = [
                {"type": "function", "id": call.id or f"call_{index}", "function": call.function.model_dump()}
                for index, call in enumerate(self.tool_calls)
            ]
        if self.role == "tool":
            given = {"name": self.tool_name, "tool_call_id": self.tool_call_id}
            fields |= {name: value for name, value in given.items() if value is not None}
        return fields


class OllamaChat(OllamaRequest):
    """The body of a request to ``/api/chat``."""

    messages: FailFastList[OllamaMessage] = Field(default_factory=list)
    """The conversation; none: the model is to be loaded, which it is."""
    tools: list[dict[str, Any]] | None = None
    """Functions that the model may call."""

    def chat_fields(self) -> Fields:
        """The fields of a chat request that asks for the same. Raises RequestError."""
        return {
            **self.common_fields(),
            "messages": [message.chat_fields(number) for number, message in enumerate(self.messages)],
            "tools": self._functions() or None,
            "chat_template_kwargs": self.template_variables(),
            "logprobs": self.logprobs,
            "top_logprobs": self.top_logprobs if self.logprobs else None,
        }

    def _functions(self) -> list[Fields]:
        """Raises RequestError for a custom tool, whose calls Ollama's answers have no form for."""
        tools = self.tools or []
        for number, tool in enumerate(tools):
            if tool.get("type") == "custom":
                place = f"tools[{number}].type"
                raise RequestError(f"{place}: 'function' is expected, not 'custom'", place)
        return tools


class OllamaGenerate(OllamaRequest):
    """The body of a request to ``/api/generate``."""

    prompt: str = ""
    """What to answer; with `raw` or `suffix`, what to continue. Empty: the model is to be loaded."""
    suffix: str = ""
    """What comes after the text."""
    system: str = ""
    """What the model is told first."""
    template: str = ""
    """A template in Go's language, in place of the chat template."""
    raw: bool = False
    """The prompt is used as it is."""
    context: TokenIds | None = None
    """Tokens of an earlier prompt and its answer, to go on from."""
    images: list[Any] | None = None
    """Refused: the models that are served read text."""

    def chat_fields(self) -> Fields:
        """The fields of a chat request, for a prompt that is answered. Raises RequestError."""
        told = [{"role": "system", "content": self.system}] if self.system else []
        return {
            **self.common_fields(),
            "messages": [*told, {"role": "user", "content": self.prompt}],
            "chat_template_kwargs": self.template_variables(),
            "logprobs": self.logprobs,
            "top_logprobs": self.top_logprobs if self.logprobs else None,
        }

    def prompt_fields(self, prompt: str | list[int]) -> Fields:
        """The fields of a completion, for a prompt that is continued. Raises RequestError."""
        return {
            **self.common_fields(),
            "prompt": prompt,
            "suffix": self.suffix or None,
            "logprobs": (self.top_logprobs or 0) if self.logprobs else None,
        }

    def check(self) -> None:
        """Raises RequestError for what is not supported."""
        _refuse_images(self.images, "images")
        if self.raw and (self.template or self.system or self.context):
            raise RequestError("raw excludes template, system and context: the prompt has it all", "raw")


class ShowRequest(_Lenient):
    """The body of a request to ``/api/show``."""

    model: str | None = None
    name: str | None = None
    """The older name of `model`."""


def _refuse_images(images: list[Any] | None, where: str) -> None:
    if images:
        raise RequestError(f"{where}: the model reads text alone; leave images out", where)
