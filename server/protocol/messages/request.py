"""The request of ``POST /v1/messages``, Anthropic's API, and what it means as a chat request."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from turnout.core.errors import RequestError
from turnout.server.protocol.base import FailFastList
from turnout.server.protocol.chat import ChatRequest

__all__ = ["ChatOfMessage", "CountRequest", "MessagesRequest"]

EFFORTS = {"xhigh": "high", "max": "high"}
"""Those that only Anthropic's models know, and what stands for them."""
CHOICES = {"auto": "auto", "any": "required", "none": "none"}
OF_SERVERS = ("web_search", "web_fetch", "code_execution", "tool_search_tool", "mcp_toolset", "advisor")
"""How the types of tools begin that run on Anthropic's servers; others of its types run in the client."""
BILLING = "x-anthropic-billing-header:"
"""How Claude Code begins a block for Anthropic's accounts, not for a model. It differs between sessions, and
stands before 30,000 tokens that they have in common."""
Block = dict[str, Any]


class ChatOfMessage(ChatRequest):
    """The chat request that a request for a message means."""

    FIELDS: ClassVar[Mapping[str, str]] = {
        **ChatRequest.FIELDS,
        "stop": "stop_sequences",
        "response_format": "output_config.format",
        "response_format.json_schema": "output_config.format",
        "tools[].function": "tools[]",
        "tools[].function.parameters": "tools[].input_schema",
    }


class _Lenient(BaseModel):
    """Fields that are not known are ignored, as Anthropic's clients expect."""

    model_config = ConfigDict(strict=True, extra="ignore")


class MessageParam(_Lenient):
    """A message of the conversation."""

    role: Literal["user", "assistant", "system"]
    content: str | FailFastList[Block]
    """Text, or blocks: `text`, `thinking`, `tool_use`, `tool_result`."""


class ToolParam(_Lenient):
    """A tool that the model may call."""

    type: str | None = None
    """`custom`; tools of Anthropic's own types, such as `bash_20250124`, are refused."""
    name: str
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    """A JSON schema of its input."""
    strict: bool | None = None


class ToolChoice(_Lenient):
    """Whether the model must call a tool."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    """With `tool`: which."""
    disable_parallel_tool_use: bool | None = None
    """At most one call."""


class Thinking(_Lenient):
    """Whether the model reasons before it answers; for chat templates that know `enable_thinking`."""

    type: str
    """`disabled`: it does not; anything else: it does."""


class OutputConfig(_Lenient):
    """The form of the answer, and how much the model reasons before it."""

    effort: str | None = None
    """For chat templates that know `reasoning_effort`, whose highest is `high`."""
    format: Block | None = None
    """`{"type": "json_schema", "schema": …}`."""


class Metadata(_Lenient):
    """About the request."""

    user_id: str | None = None


class CountRequest(_Lenient):
    """The body of a request to count the tokens of a conversation."""

    model: str | None = None
    """Another name than the served one gets 404. Default: the served one."""
    messages: FailFastList[MessageParam]
    """The conversation. If its last message is the assistant's, the answer goes on from there."""
    system: str | FailFastList[Block] | None = None
    """What the model is told first: text, or `text` blocks."""
    tools: FailFastList[ToolParam] | None = None
    """[Tools that the model may call](../how-to/tools.md)."""
    tool_choice: ToolChoice | None = None
    """Whether it must. Default: `{"type": "auto"}`."""
    thinking: Thinking | None = None
    """Whether it reasons first. Default: as the chat template has it."""
    output_config: OutputConfig | None = None
    """`format`: the form of the answer, by a JSON schema; `effort`: how much the model reasons."""
    output_format: Block | None = None
    """The older name of `output_config.format`."""

    def chat_fields(self) -> dict[str, Any]:
        """The fields of a chat request that asks for the same. Raises RequestError for what is not
        supported."""
        fields: dict[str, Any] = {"messages": [*self._told_first(), *self._conversation()]}
        if self.tools:
            fields["tools"] = [_tool(number, tool) for number, tool in enumerate(self.tools)]
        if (choice := self.tool_choice) is not None:
            if choice.type in ("any", "tool") and not self.tools:
                raise RequestError(f"tool_choice is {choice.type!r}, but there are no tools", "tool_choice")
            named = {"type": "function", "function": {"name": choice.name or ""}}
            fields["tool_choice"] = CHOICES.get(choice.type, named)
            if choice.disable_parallel_tool_use:
                fields["parallel_tool_calls"] = False
        fields["chat_template_kwargs"] = self._template_variables() or None
        if (form := self._form()) is not None:
            fields["response_format"] = form
        if _is_begun(fields["messages"][-1:]):
            fields |= {"add_generation_prompt": False, "continue_final_message": True}
        return fields

    def _template_variables(self) -> Block:
        variables: Block = {}
        if self.thinking is not None:
            variables["enable_thinking"] = self.thinking.type != "disabled"
        if self.output_config is not None and (effort := self.output_config.effort) is not None:
            variables["reasoning_effort"] = EFFORTS.get(effort, effort)
        return variables

    def _form(self) -> Block | None:
        form = self.output_format
        if self.output_config is not None and self.output_config.format is not None:
            form = self.output_config.format
        if form is None:
            return None
        if form.get("type") != "json_schema":
            raise RequestError(
                f"output_config.format should have the type 'json_schema', not {form.get('type')!r}"
            )
        return {"type": "json_schema", "json_schema": {"name": "answer", "schema": form.get("schema")}}

    def _told_first(self) -> Iterator[Block]:
        if self.system:
            text = self.system if isinstance(self.system, str) else _joined_text("system", _told(self.system))
            yield {"role": "system", "content": text}

    def _conversation(self) -> Iterator[Block]:
        for number, message in enumerate(self.messages):
            where = f"messages[{number}].content"
            if isinstance(message.content, str):
                yield {"role": message.role, "content": message.content}
            elif message.role == "assistant":
                yield _said(where, message.content)
            else:
                yield from _asked(where, message.role, message.content)


class MessagesRequest(CountRequest):
    """The body of a request for a message."""

    max_tokens: Annotated[int, Field(gt=0)]
    """Most tokens to generate; more than fit means as many as fit."""
    stop_sequences: list[str] | None = None
    """Strings that end the text."""
    stream: bool | None = None
    """Answer in pieces."""
    temperature: float | None = None
    """0 always takes the most likely token."""
    top_p: float | None = None
    """Sample from the most likely tokens that together have this probability."""
    top_k: int | None = None
    """Sample from this many of the most likely."""
    metadata: Metadata | None = None
    """`user_id`: the client's user, as `user` in chat."""
    thread: Block | None = None
    """Refused, so that the client sends the whole conversation: nothing of it is kept here."""

    def chat_fields(self) -> dict[str, Any]:
        return {
            **super().chat_fields(),
            "max_tokens": self.max_tokens,
            "stop": self.stop_sequences,
            "stream": self.stream,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "user": self.metadata.user_id if self.metadata else None,
        }


def _told(blocks: Sequence[Block]) -> list[Block]:
    """The blocks of `system` that are for the model."""
    return [block for block in blocks if not str(block.get("text")).startswith(BILLING)]


def _is_begun(last: Sequence[Block]) -> bool:
    """Whether the client has begun the answer, which then goes on from there."""
    return any(
        message["role"] == "assistant" and message["content"] and not message.get("tool_calls")
        for message in last
    )


def _tool(number: int, tool: ToolParam) -> Block:
    if tool.type not in (None, "custom"):
        if tool.type.startswith(OF_SERVERS):
            why = "runs on Anthropic's servers; here tools are 'custom', with a name and an input_schema"
        else:
            why = "is not supported; give the tool without a type, with a name and an input_schema"
        raise RequestError(f"tools[{number}] has the type {tool.type!r}, which {why}")
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.input_schema,
        "strict": tool.strict,
    }
    return {"type": "function", "function": function}


def _asked(where: str, role: str, blocks: Sequence[Block]) -> Iterator[Block]:
    """A user's message: the results of tools, then what the user says."""
    said: list[Block] = []
    for block in blocks:
        if block.get("type") == "tool_result":
            yield {
                "role": "tool",
                "tool_call_id": block.get("tool_use_id"),
                "content": _result(f"{where} tool_result", block.get("content")),
            }
        else:
            said.append(block)
    if said:
        yield {"role": role, "content": _joined_text(where, said)}


def _result(where: str, content: object) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return _joined_text(where, content)


def _said(where: str, blocks: Sequence[Block]) -> Block:
    """An assistant's message: text, reasoning and calls."""
    said: Block = {"role": "assistant", "content": None}
    texts, thoughts, calls = [], [], []
    for block in blocks:
        kind = block.get("type")
        if kind == "tool_use":
            function = {"name": block.get("name"), "arguments": json.dumps(block.get("input") or {})}
            calls.append({"id": block.get("id"), "type": "function", "function": function})
        elif kind == "thinking":
            if thought := _thought(where, block):
                thoughts.append(thought)
        elif kind != "redacted_thinking":
            texts.append(_text(where, block))
    said["content"] = "\n".join(texts) or None
    if thoughts:
        said["reasoning_content"] = "\n".join(thoughts)
    if calls:
        said["tool_calls"] = calls
    return said


def _thought(where: str, block: Block) -> str:
    thought = block.get("thinking")
    if not isinstance(thought, str | None):
        raise RequestError(f"{where} has a block of the type 'thinking' whose thinking is no text")
    return thought or ""


def _joined_text(where: str, blocks: object) -> str:
    if not isinstance(blocks, list):
        raise RequestError(f"{where} should be text or a list of blocks")
    return "\n".join(_text(where, block) for block in blocks)


def _text(where: str, block: object) -> str:
    kind = block.get("type") if isinstance(block, dict) else None
    text = block.get("text") if isinstance(block, dict) else None
    if kind != "text":
        raise RequestError(f"{where} has a block of the type {kind!r}; only text is supported there")
    if not isinstance(text, str):
        raise RequestError(f"{where} has a block of the type 'text' without a text")
    return text
