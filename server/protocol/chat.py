"""The request of ``POST /v1/chat/completions``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, field_validator, model_validator

from turnout.core import limits
from turnout.core.errors import RequestError
from turnout.server.protocol.base import FailFastList, GenerationRequest
from turnout.text.prompt.tool_request import ToolRequest

__all__ = ["ChatOptions", "ChatRequest", "Message", "Messages", "text_size"]


RESERVED = frozenset(
    {
        "add_generation_prompt",
        "chat_template",
        "continue_final_message",
        "documents",
        "messages",
        "self",
        "tools",
    }
)
"""Variables of chat templates that `chat_template_kwargs` must not set; `Tokenizer.chat_text` takes most."""


class Message(BaseModel):
    """A message. Its other fields go to the chat template, which may use them."""

    model_config = ConfigDict(strict=True, extra="allow")

    role: str
    content: str | None = None
    """A list of parts of the types `text` and `refusal` is joined by line breaks."""

    @field_validator("content", mode="before", json_schema_input_type=str | list[dict[str, Any]] | None)
    @classmethod
    def _joined(cls, value: object) -> object:
        if value is None or isinstance(value, str):
            return value
        if not isinstance(value, list):
            raise ValueError("a string or a list of parts is expected")
        return "\n".join(_part_text(part) for part in value)


def _few_enough(messages: list[Message]) -> list[Message]:
    if len(messages) > limits.MESSAGES.most:
        raise ValueError(f"at most {limits.MESSAGES.whole:,} messages are expected")
    return messages


Messages = Annotated[FailFastList[Message], AfterValidator(_few_enough)]


def text_size(messages: Iterable[Message]) -> int:
    """The characters of the messages' texts."""
    return sum(len(message.content or "") for message in messages)


class ChatOptions(BaseModel):
    """How the chat template makes a prompt of a conversation."""

    add_generation_prompt: bool = True
    """vLLM's. Let the template begin the assistant's turn."""
    continue_final_message: bool = False
    """vLLM's. Go on with the last message instead of answering it; needs `add_generation_prompt` false."""
    chat_template_kwargs: dict[str, Any] | None = None
    """vLLM's. Variables for the chat template, such as `{"enable_thinking": false}`."""
    reasoning_effort: str | None = None
    """For chat templates that know it: how much the model reasons. `none` is `enable_thinking: false` for the
    others."""

    def template_variables(self) -> dict[str, Any]:
        """What the template is given beside the conversation."""
        effort = self.reasoning_effort
        variables: dict[str, Any] = {}
        if effort is not None:
            variables = {"enable_thinking": False} if effort == "none" else {"reasoning_effort": effort}
        return {**variables, **(self.chat_template_kwargs or {})}

    @field_validator("chat_template_kwargs", mode="after")
    @classmethod
    def _no_reserved_names(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if reserved := RESERVED & (value or {}).keys():
            raise ValueError(f"{min(reserved)!r} cannot be given here")
        return value


class ChatRequest(ChatOptions, ToolRequest, GenerationRequest):
    """The body of a chat request."""

    UNSET_SAMPLING: ClassVar[Mapping[str, Any]] = {"max_tokens": None}
    FIELDS: ClassVar[Mapping[str, str]] = {
        **GenerationRequest.FIELDS,
        "prompt": "messages",
        "logprobs": "top_logprobs",
    }

    messages: Messages
    """The conversation."""
    max_completion_tokens: int | None = None
    """The newer name of `max_tokens`; wins over it."""
    logprobs: bool | None = None
    """[Log-probabilities](http-api.md#log-probabilities) of the chosen tokens."""
    top_logprobs: int | None = None
    """And of this many of the most likely; needs `logprobs`. Default: 0."""
    add_special_tokens: bool = False
    """vLLM's. Let the tokenizer add its own to those of the template."""

    @field_validator("messages", mode="after")
    @classmethod
    def _some(cls, value: list[Message]) -> list[Message]:
        if not value:
            raise ValueError("at least one message is expected")
        return value

    @model_validator(mode="after")
    def _combinations(self) -> Self:
        if self.max_completion_tokens is not None:
            self.max_tokens = self.max_completion_tokens
        if self.top_logprobs and not self.logprobs:
            raise RequestError("top_logprobs needs logprobs to be true", "top_logprobs")
        return self

    @contextmanager
    def client_field_names(self) -> Iterator[None]:
        with super().client_field_names(), self.tools_named():
            yield

    @property
    def structured_field(self) -> str:
        found = super().structured_field
        unasked = found == "structured_outputs" and self.structured_outputs is None
        return "tools" if unasked and self.offered else found

    @property
    def field_names(self) -> Mapping[str, str]:
        newer = {} if self.max_completion_tokens is None else {"max_tokens": "max_completion_tokens"}
        return {**self.FIELDS, **newer}

    def logprob_count(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None


def _part_text(part: object) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(part, dict) or kind not in ("text", "refusal"):
        raise ValueError(f"only parts of type 'text' are supported, not {kind!r}")
    text = part.get(kind)
    if not isinstance(text, str):
        raise ValueError(f"a part of type {kind!r} is expected to have a {kind}, which is a string")
    return text
