"""The responses of ``/v1/messages`` and the events of a streamed one, in Anthropic's form."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

__all__ = [
    "Message",
    "MessageUsage",
    "ModelInfo",
    "ModelPage",
    "NamedEvent",
    "OutputTokensDetails",
    "TokenCount",
]


class OutputTokensDetails(msgspec.Struct):
    """What the tokens generated are."""

    thinking_tokens: int
    """Those of reasoning, without the markers around it."""


class MessageUsage(msgspec.Struct):
    """The tokens of a request."""

    input_tokens: int
    """Prompt tokens that were computed: those found in the KV cache are counted apart."""
    output_tokens: int
    cache_read_input_tokens: int = 0
    """Prompt tokens whose KV memory was found."""
    cache_creation_input_tokens: int = 0
    output_tokens_details: OutputTokensDetails | UnsetType = UNSET
    """Of models that reason."""


class Message(msgspec.Struct):
    """A message of the assistant."""

    id: str
    model: str
    content: list[dict[str, Any]]
    """Blocks: `thinking`, `text`, `tool_use`."""
    stop_reason: str | None
    """`end_turn`, `max_tokens`, `stop_sequence`, `tool_use`."""
    stop_sequence: str | None
    """The stop sequence that ended the text."""
    usage: MessageUsage
    type: str = "message"
    role: str = "assistant"


class NamedEvent(msgspec.Struct, omit_defaults=True):
    """An event of a streamed message; `type` is its name."""

    type: str
    message: Message | None = None
    index: int | None = None
    content_block: dict[str, Any] | None = None
    delta: dict[str, Any] | None = None
    usage: MessageUsage | None = None


class TokenCount(msgspec.Struct):
    """The tokens of a conversation."""

    input_tokens: int


class ModelInfo(msgspec.Struct):
    """A model, as ``/v1/models`` lists it for Anthropic's clients."""

    id: str
    created_at: datetime
    display_name: str
    max_input_tokens: int | None
    type: str = "model"
    lifecycle: str = "active"


class ModelPage(msgspec.Struct):
    """The list of models."""

    data: list[ModelInfo]
    first_id: str
    last_id: str
    has_more: bool = False
