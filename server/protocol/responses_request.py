"""The request of ``POST /v1/responses``, OpenAI's newer API, and what it means as a chat request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from turnout.core.errors import RequestError
from turnout.server.protocol.base import FailFastList
from turnout.server.protocol.chat import ChatRequest
from turnout.server.protocol.metadata import Notes
from turnout.server.protocol.response_tools import (
    CALLABLE,
    OfferedTool,
    check_tools,
    name_for_model,
    named_for_chat,
    offered_tools,
)

__all__ = ["ChatOfResponse", "ResponsesRequest"]

Item = dict[str, Any]
TOOL = re.compile(r"^tools\[(\d+)\]")
TEXTS = frozenset({"input_text", "output_text", "reasoning_text", "refusal", "text"})
REFUSED = {
    "conversation": (),
    "prompt": (),
    "top_logprobs": (0,),
    "truncation": ("disabled",),
}
"""Fields that would change the response, with the values that ask for nothing; None always does."""
HINTS = {
    "conversation": "; send the whole conversation as input",
    "top_logprobs": "; /v1/chat/completions has log-probabilities",
}
LOGPROBS = "message.output_text.logprobs"
OF_ITEMS = (
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
)
"""What `include` may name: output of items that no response has, and reasoning, which is plain text here."""


def _includable(value: str) -> str:
    if value == LOGPROBS:
        raise ValueError(f"{LOGPROBS!r} is not supported{HINTS['top_logprobs']}")
    if value not in OF_ITEMS:
        raise ValueError(f"should be one of {', '.join(OF_ITEMS)}")
    return value


class ChatOfResponse(ChatRequest):
    """The chat request that a request for a response means."""

    FIELDS: ClassVar[Mapping[str, str]] = {
        **ChatRequest.FIELDS,
        "prompt": "input",
        "messages": "input",
        "max_tokens": "max_output_tokens",
        "response_format": "text.format",
        "response_format.json_schema": "text.format",
        "tools[].function": "tools[]",
        "tools[].custom": "tools[]",
        "tools[].custom.format.grammar": "tools[].format",
    }


class _Lenient(BaseModel):
    """Fields that are not known are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore")


class TextOptions(_Lenient):
    """The form of the answer's text."""

    format: Item | None = None
    """`{"type": "text"}`, `{"type": "json_object"}`, or `{"type": "json_schema", "name": …, "schema": …}`."""


class ReasoningOptions(_Lenient):
    """How much the model reasons before it answers."""

    effort: str | None = None
    """For chat templates that know `reasoning_effort`; `none` is `enable_thinking: false` for the others."""


class ResponsesRequest(BaseModel):
    """The body of a request for a response."""

    model_config = ConfigDict(strict=True, extra="allow")

    model: str | None = None
    """Another name than the served one gets 404. Default: the served one."""
    input: str | FailFastList[Item]
    """A text, or items: messages, `function_call`, `function_call_output`, `custom_tool_call`,
    `custom_tool_call_output`, `reasoning`, and `item_reference` to an item of a stored response."""
    instructions: str | None = None
    """What the model is told first."""
    tools: FailFastList[Item] | None = None
    """[Functions and `custom` tools that the model may call](../how-to/tools.md), and namespaces of them. The
    `format` of a custom tool is `{"type": "text"}`, or `{"type": "grammar", "syntax": "regex", "definition":
    …}`. Tools of other types are left out, as the response's `tools` show."""
    tool_choice: Literal["none", "auto", "required"] | Item | None = None
    """As in chat; a named tool is `{"type": "function", "name": …}`, or `custom`, with its `namespace` if it
    has one, and some of the tools are `{"type": "allowed_tools", "mode": …, "tools": […]}`."""
    parallel_tool_calls: bool | None = None
    """Whether an answer may have several calls. Default: true."""
    max_output_tokens: Annotated[int, Field(gt=0)] | None = None
    """Most tokens to generate; more than fit means as many as fit. Default: as many as fit."""
    temperature: float | None = None
    """0 always takes the most likely token."""
    top_p: float | None = None
    """Sample from the most likely tokens that together have this probability."""
    stream: bool | None = None
    """Answer in pieces."""
    text: TextOptions | None = None
    """The form of the answer."""
    reasoning: ReasoningOptions | None = None
    """How much the model reasons."""
    previous_response_id: str | None = None
    """A stored response to go on from: its input and output come before this input."""
    store: bool | None = None
    """Whether to keep the response. Default: true where the server keeps responses, else false."""
    background: bool | None = None
    """Answer at once, and generate on; the response is stored, and `GET /v1/responses/{id}` shows it."""
    include: FailFastList[Annotated[str, AfterValidator(_includable)]] | None = None
    """OpenAI's names of further output, such as `reasoning.encrypted_content`: accepted, but without effect.
    `message.output_text.logprobs` is refused."""
    user: str | None = None
    """The client, as in chat."""
    metadata: Notes | None = None
    """Given back with the response."""

    @model_validator(mode="after")
    def _check_tools(self) -> Self:
        check_tools(self.tools or ())
        return self

    def callable_tools(self) -> list[OfferedTool]:
        """What the model may call."""
        return list(offered_tools(self.tools or ()))

    @contextmanager
    def tools_numbered(self) -> Iterator[None]:
        """Make errors raised in the block number tools as the client does; chat's request has others."""
        try:
            yield
        except RequestError as error:
            if found := TOOL.match(error.param or ""):
                theirs = self.callable_tools()[int(found[1])].where
                error.args = (TOOL.sub(theirs, str(error), count=1),)
                error.param = TOOL.sub(theirs, error.param or "", count=1)
            raise

    def input_items(self) -> list[Item]:
        """The input as items."""
        if isinstance(self.input, str):
            return [{"type": "message", "role": "user", "content": self.input}]
        return self.input

    def references(self) -> list[tuple[int, str]]:
        """The items that only refer to others: their numbers, and the names of those. Raises RequestError."""
        return [
            (number, _referred(f"input[{number}].id", item))
            for number, item in enumerate(self.input_items())
            if _refers(item)
        ]

    def chat_fields(self, before: Sequence[Item] = ()) -> dict[str, Any]:
        """The fields of a chat request that asks for the same. Raises RequestError for what is not
        supported.

        before: the items of the conversation that this request goes on from.
        """
        for name, value in (self.model_extra or {}).items():
            if name in REFUSED and value is not None and value not in REFUSED[name]:
                raise RequestError(f"{name} is not supported{HINTS.get(name, '')}", name)
        fields: dict[str, Any] = {
            "messages": list(_merged(self._messages(before))),
            "max_tokens": self.max_output_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "stream": self.stream,
            "user": self.user,
            "priority": (self.model_extra or {}).get("priority"),
            "response_format": self._form(),
            "chat_template_kwargs": self._template_variables(),
            "tool_choice": self._choice(),
        }
        if tools := self.callable_tools():
            fields["tools"] = [each.for_chat() for each in tools]
            fields["parallel_tool_calls"] = self.parallel_tool_calls
        return fields

    def _form(self) -> Item | None:
        form = self.text.format if self.text else None
        if form is None or form.get("type") != "json_schema":
            return form
        return {"type": "json_schema", "json_schema": form}

    def _template_variables(self) -> Item | None:
        effort = self.reasoning.effort if self.reasoning else None
        if effort is None:
            return None
        return {"enable_thinking": False} if effort == "none" else {"reasoning_effort": effort}

    def _choice(self) -> object:
        choice = self.tool_choice
        if not isinstance(choice, dict):
            return choice
        if choice.get("type") == "allowed_tools":
            return {"type": "allowed_tools", "allowed_tools": self._allowed(choice)}
        if choice.get("type") not in CALLABLE:
            raise RequestError(
                "tool_choice should be a text or name a function or a custom tool, not "
                f"{choice.get('type')!r}",
                "tool_choice",
            )
        return _named(choice)

    def _allowed(self, choice: Item) -> Item:
        """Tools that are left out of the request are left out of the choice, too."""
        mode, tools = choice.get("mode"), choice.get("tools")
        if mode not in ("auto", "required"):
            raise RequestError(
                f"tool_choice.mode should be 'auto' or 'required', not {mode!r}", "tool_choice"
            )
        if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
            raise RequestError("tool_choice.tools should be a list of tools", "tool_choice")
        found = [_named(tool) for tool in tools if tool.get("type") in CALLABLE]
        whole = [tool.get("name") for tool in tools if tool.get("type") == "namespace"]
        for each in self.callable_tools():
            if each.namespace is not None and each.namespace["name"] in whole:
                found.append(named_for_chat(each.kind, each.full_name))
        return {"mode": mode, "tools": found}

    def _messages(self, before: Sequence[Item]) -> Iterator[Item]:
        if self.instructions:
            yield {"role": "system", "content": self.instructions}
        for item in before:
            yield from _message("an item of previous_response_id", item)
        for number, item in enumerate(self.input_items()):
            yield from _message(f"input[{number}]", item)


def _named(tool: Item) -> Item:
    if not isinstance(tool.get("name"), str):
        raise RequestError("tool_choice should have the name of a tool", "tool_choice")
    full_name = name_for_model(tool["name"], _namespace("tool_choice", tool, "tool_choice"))
    return named_for_chat(tool["type"], full_name)


def _namespace(where: str, item: Item, param: str) -> str | None:
    namespace = item.get("namespace")
    if namespace is not None and not isinstance(namespace, str):
        raise RequestError(f"{where}.namespace should be the name of a namespace", param)
    return namespace


def _message(where: str, item: Item) -> Iterator[Item]:
    """An item as a chat message, or a part of the assistant's."""
    kind = item.get("type", "message")
    if kind == "message":
        role = item.get("role")
        if not isinstance(role, str):
            raise RequestError(f"{where}.role should be a text, such as 'user'", "input")
        content = _text(f"{where}.content", item.get("content"))
        yield {"role": "system" if role == "developer" else role, "content": content}
    elif kind == "function_call":
        yield _call(where, item, "function", arguments=item.get("arguments") or "{}")
    elif kind == "custom_tool_call":
        if not isinstance(item.get("input"), str):
            raise RequestError(f"{where}.input should be a text", "input")
        yield _call(where, item, "custom", input=item["input"])
    elif kind in ("function_call_output", "custom_tool_call_output"):
        output = _text(f"{where}.output", item.get("output"))
        yield {"role": "tool", "tool_call_id": item.get("call_id"), "content": output}
    elif kind == "reasoning":
        if told := _text(f"{where}.content", item.get("content")):
            yield {"role": "assistant", "content": None, "reasoning_content": told}
    else:
        raise RequestError(f"{where} has the type {kind!r}, which is not supported", "input")


def _call(where: str, item: Item, kind: str, **given: str) -> Item:
    name, namespace = item.get("name"), _namespace(where, item, "input")
    if isinstance(name, str):
        name = name_for_model(name, namespace)
    call = {"id": item.get("call_id"), "type": kind, kind: {"name": name, **given}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _refers(item: Item) -> bool:
    """Whether an item is the name of another; its type may be left out."""
    return item.get("type") == "item_reference" or (
        item.get("type") is None and item.keys() <= {"type", "id"}
    )


def _referred(where: str, item: Item) -> str:
    name = item.get("id")
    if not isinstance(name, str):
        raise RequestError(f"{where} should be the id of an item", "input")
    return name


def _text(where: str, content: object) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise RequestError(f"{where} should be text or a list of parts", "input")
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if not isinstance(kind, str) or kind not in TEXTS:
            raise RequestError(f"{where} has a part of the type {kind!r}; only text is supported", "input")
        text = part.get("refusal" if kind == "refusal" else "text")
        if not isinstance(text, str):
            raise RequestError(f"{where} has a part of the type {kind!r} without a text", "input")
        texts.append(text)
    return "\n".join(texts)


def _merged(messages: Iterator[Item]) -> Iterator[Item]:
    """Joins what an assistant did in one turn, and what stands before the conversation."""
    last: Item | None = None
    for message in messages:
        if (
            last is not None
            and message["role"] == last["role"] == "assistant"
            and not (last.get("tool_calls") and message.get("content"))
        ):
            last = _joined(last, message)
        elif last is not None and message["role"] == last["role"] == "system":
            last = {"role": "system", "content": f"{last['content']}\n\n{message['content']}"}
        else:
            if last is not None:
                yield last
            last = message
    if last is not None:
        yield last


def _joined(first: Item, second: Item) -> Item:
    both = {**first, **{key: value for key, value in second.items() if value is not None}}
    if first.get("content") and second.get("content"):
        both["content"] = f"{first['content']}\n{second['content']}"
    if first.get("tool_calls") and second.get("tool_calls"):
        both["tool_calls"] = [*first["tool_calls"], *second["tool_calls"]]
    return both
