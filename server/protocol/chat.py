"""The request of ``POST /v1/chat/completions``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from turnout.core import limits
from turnout.core.errors import RequestError
from turnout.server.protocol.base import FailFastList, GenerationRequest
from turnout.text.prompt.message_content import content_text
from turnout.text.prompt.template_variables import check_not_reserved
from turnout.text.prompt.tool_request import ToolRequest

__all__ = ["ChatOptions", "ChatRequest", "Message", "Messages", "text_size"]


class Message(BaseModel):
    """A message. Its other fields go to the chat template, which may use them."""

    model_config = ConfigDict(strict=True, extra="allow")

    role: str
    content: str | None = None
    """A list of parts of the types `text` and `refusal` is joined by line breaks."""

    @field_validator("content", mode="before", json_schema_input_type=str | list[dict[str, Any]] | None)
    @classmethod
    def _joined(cls, value: object) -> object:
        return content_text(value)


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
        check_not_reserved(value or ())
        return value


class ChatRequest(ChatOptions, ToolRequest, GenerationRequest):
    """The body of a chat request."""

    UNSET_SAMPLING: ClassVar[Mapping[str, Any]] = {"max_tokens": None}
    FIELDS: ClassVar[Mapping[str, str]] = {
        **GenerationRequest.FIELDS,
        "prompt": "messages",
        "logprobs": "top_logprobs",
    }

    messages: Annotated[Messages, Field(json_schema_extra={"minItems": 1, "maxItems": limits.MESSAGES.whole})]
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
