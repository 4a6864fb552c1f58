"""The request of ``POST /v1/completions``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import PrivateAttr, SkipValidation, field_validator, model_validator

from turnout.core import limits
from turnout.core.errors import RequestError
from turnout.server.protocol.base import GenerationRequest
from turnout.server.protocol.token_ids import are_token_ids

__all__ = ["CompletionRequest", "PlainPrompt", "Prompt"]

Prompt = str | list[int]
"""Text, or token ids."""


class CompletionRequest(GenerationRequest):
    """The body of a completion request."""

    as_fits: ClassVar[bool] = False
    """`max_tokens` beyond the context means as many as fit; otherwise it is refused."""

    prompt: Annotated[list[Prompt], SkipValidation]
    """What to continue."""
    suffix: str | None = None
    """What comes after the text: the model [fills in the middle](http-api.md#filling-in)."""
    echo: bool | None = None
    """Put the prompt in front of the text; with `logprobs`, its log-probabilities too."""
    logprobs: int | None = None
    """[Log-probabilities](http-api.md#log-probabilities) of the chosen token and this many of the most
    likely."""
    add_special_tokens: bool = True
    """vLLM's. Let the tokenizer add its own, such as a beginning of sequence."""
    _prompt_only: bool = PrivateAttr(default=False)

    @field_validator("prompt", mode="before", json_schema_input_type=Prompt | list[Prompt])
    @classmethod
    def _prompts(cls, value: object) -> list[Prompt]:
        if _is_prompt(value):
            return [value]  # type: ignore[list-item]  # it is one
        prompts = value
        if not isinstance(prompts, list) or not all(map(_is_prompt, prompts)):
            raise ValueError(
                "a string, a list of strings, a list of token ids or a list of such lists is expected"
            )
        if not prompts:
            raise ValueError("at least one prompt is expected")
        if len(prompts) > limits.PROMPTS.most:
            raise ValueError(f"at most {limits.PROMPTS.whole} prompts are expected")
        return prompts

    @model_validator(mode="after")
    def _combinations(self) -> Self:
        for name in ("echo", "truncate_prompt_tokens"):
            if self.suffix and getattr(self, name):
                raise RequestError(f"{name} and suffix exclude each other", name)
        if self.max_tokens == 0:
            if not self.echo and self.prompt_logprobs is None:
                raise RequestError(
                    "max_tokens of 0 generates nothing, so it needs echo or prompt_logprobs", "max_tokens"
                )
            # The engine chooses a token for the prompt's last logits, which no client sees.
            self.max_tokens, self._prompt_only = 1, True
        return self

    @property
    def prompt_only(self) -> bool:
        """The client wants no text, only its prompt back or the prompt's log-probabilities."""
        return self._prompt_only

    def logprob_count(self) -> int | None:
        return self.logprobs

    def prompt_logprob_count(self) -> int | None:
        """An echoed prompt has log-probabilities if the text has."""
        asked = [count for count in (self.prompt_logprobs, self.logprobs if self.echo else None)]
        return max((count for count in asked if count is not None), default=None)


class PlainPrompt(CompletionRequest):
    """A prompt of another API than OpenAI's, where by itself only the context bounds the text."""

    UNSET_SAMPLING: ClassVar[Mapping[str, Any]] = {"max_tokens": None}
    as_fits: ClassVar[bool] = True


def _is_prompt(value: object) -> bool:
    """An empty list is not a prompt: it may have been meant as a list of prompts."""
    if isinstance(value, list):
        return bool(value) and are_token_ids(value)
    return isinstance(value, str)
