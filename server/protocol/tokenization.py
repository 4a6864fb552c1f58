"""The requests of ``POST /tokenize`` and ``POST /detokenize``, and their answers, in vLLM's form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import msgspec
from msgspec import UNSET, UnsetType
from pydantic import BaseModel, ConfigDict, model_validator

from turnout.core.errors import RequestError
from turnout.server.protocol.chat import ChatOptions, Messages
from turnout.server.protocol.token_ids import TokenIds, Truncation
from turnout.server.protocol.unsupported import refuse_unsupported
from turnout.text.prompt.tool_request import ToolRequest

__all__ = ["DetokenizeRequest", "TokenizeRequest", "TokenizeResponse"]


class TokenizeRequest(ChatOptions, ToolRequest):
    """The body of a request to tokenize a text or a conversation."""

    model_config = ConfigDict(strict=True, extra="allow")

    model: str | None = None
    """As for completions."""
    prompt: str | None = None
    """A text; or else `messages`."""
    messages: Messages | None = None
    """A conversation, as for chat."""
    add_special_tokens: bool | None = None
    """Let the tokenizer add its own, such as a beginning of sequence. Default: true for a text; in a
    conversation the template adds them."""
    truncate_prompt_tokens: Truncation | None = None
    """Keep only so many of the last tokens; -1: as many as a prompt may have."""
    return_token_strs: bool = False
    """Return `token_strs` too: each token as the vocabulary spells it."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        refuse_unsupported(self.model_extra or {})
        if (self.prompt is None) == (not self.messages):
            raise RequestError("either a prompt or messages are expected", "prompt")
        return self


class DetokenizeRequest(BaseModel):
    """The body of a request to decode tokens."""

    model_config = ConfigDict(strict=True)

    model: str | None = None
    """As for completions."""
    tokens: TokenIds
    """The token ids; special ones are shown, too."""


class TokenizeResponse(msgspec.Struct):
    """The tokens of a text."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: Sequence[str] | UnsetType = UNSET
