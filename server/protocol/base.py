"""The fields that requests for completions and for chat have in common."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from turnout.core import limits
from turnout.core.errors import RequestError
from turnout.core.types.param_groups import merge_defaults
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams, concrete_seed
from turnout.server.protocol.field_names import client_names
from turnout.server.protocol.names import bounded_name
from turnout.server.protocol.structured import StructuredRequest
from turnout.server.protocol.token_ids import MAX_TOKEN_ID, TokenIds, Truncation
from turnout.server.protocol.unsupported import refuse_unsupported

__all__ = ["FailFastList", "GenerationRequest"]

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
FailFastList = Annotated[list[Item], Field(fail_fast=True)]
"""Only the first invalid item is reported: errors about millions of items would fill the memory."""
MAX_BIAS = 100
Bias = Annotated[float, Field(ge=-MAX_BIAS, le=MAX_BIAS)]
CHOICES = Field(json_schema_extra={"minimum": 1, "maximum": limits.CHOICES.whole})
"""Bounds that `SamplingParams` checks, whatever a request's numbers come from."""
Milliseconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]

SAMPLING_FIELDS = (
    "n",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "max_tokens",
    "min_tokens",
    "stop_token_ids",
    "include_stop_str_in_output",
    "ignore_eos",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "allowed_token_ids",
    "bad_words",
    "skip_special_tokens",
    "best_of",
    "use_beam_search",
    "beam_width",
    "length_penalty",
    "early_stopping",
    "decoding",
)
"""The fields that `SamplingParams` has with the same name and meaning.

A field of `GenerationRequest` that is missing here does not reach the engine, unless
`sampling_params` sets it.
"""


class StreamOptions(BaseModel):
    """OpenAI's ``stream_options``."""

    model_config = ConfigDict(strict=True)

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    """vLLM's: the usage so far in every chunk. It includes the usage unless the client says otherwise."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.continuous_usage_stats and self.include_usage is False:
            raise RequestError(
                "stream_options.continuous_usage_stats needs include_usage, which is false", "stream_options"
            )
        return self


class GenerationRequest(StructuredRequest):
    """The body of a request. Types are strict: a number in quotes is an error. None means: not given."""

    model_config = ConfigDict(strict=True, extra="allow")

    UNSET_SAMPLING: ClassVar[Mapping[str, Any]] = {}
    """This endpoint's defaults for sampling parameters that neither the client nor the model sets."""
    FIELDS: ClassVar[Mapping[str, str]] = {"extra_args": "vllm_xargs"}
    """Fields of the engine's request, or of ours, that the client knows by another name: those to these."""

    model: str | None = None
    """Another name than the served one gets 404. Default: the served one."""
    n: Annotated[int | None, CHOICES] = None
    """Choices for each prompt."""
    temperature: float | None = None
    """0 always takes the most likely token."""
    top_p: float | None = None
    """Sample from the most likely tokens that together have this probability."""
    top_k: int | None = None
    """vLLM's. Sample from this many of the most likely; 0 or -1: from all."""
    min_p: float | None = None
    """vLLM's. Exclude tokens less likely than this fraction of the most likely."""
    seed: int | None = None
    """[Makes the answer repeatable.](#seeds) Default: drawn anew."""
    max_tokens: int | None = None
    """Most tokens to generate for each choice. Completions take 0 with `echo` or `prompt_logprobs`, for [the
    prompt alone](http-api.md#of-the-prompt). Default: 16; in chat as many as fit."""
    min_tokens: int | None = None
    """vLLM's. Nothing stops the text before this many tokens."""
    stop: list[str] | None = None
    """[Strings that end the text.](#stopping)"""
    stop_token_ids: TokenIds | None = None
    """vLLM's. Tokens that end the text, beside the model's own."""
    include_stop_str_in_output: bool | None = None
    """vLLM's. Keep what stopped the text in it."""
    ignore_eos: bool | None = None
    """vLLM's. Go on after the model's end of sequence."""
    presence_penalty: float | None = None
    """Taken off the logit of every token that is in the output."""
    frequency_penalty: float | None = None
    """Taken off the logit of every token for each time that it is in the output."""
    repetition_penalty: float | None = None
    """vLLM's. Divides (or, where negative, multiplies) the logit of every token in prompt or output."""
    skip_special_tokens: bool | None = None
    """vLLM's. Leave special tokens out of the text."""
    logit_bias: dict[str, Bias] | None = None
    """Added to the logits of these tokens."""
    allowed_token_ids: TokenIds | None = None
    """vLLM's. Choose only among these. If the model's end of sequence is not one, only the length ends the
    text. Default: all."""
    bad_words: FailFastList[str] | None = None
    """vLLM's. Words that [must not be produced](#words-that-must-not-come)."""
    stream: bool | None = None
    """[Answer in pieces.](http-api.md#streaming)"""
    stream_options: StreamOptions | None = None
    """Only with `stream`: `{"include_usage": true}`, or vLLM's `{"continuous_usage_stats": true}` for [the
    usage in every chunk](http-api.md#streaming)."""
    priority: Annotated[int, Field(ge=-(2**63), lt=2**63)] = 0
    """vLLM's. Lower is served first, by policies that look at it; `fcfs` does not."""
    user: str | None = None
    """[The client](deadlines-and-timing.md#whose-request-it-is), for policies that share between clients.
    Default: the client's API key."""
    deadline_ms: Milliseconds | None = None
    """Turnout's. Milliseconds after arrival by which [it should be
    finished](deadlines-and-timing.md#deadlines)."""
    ttft_deadline_ms: Milliseconds | None = None
    """Turnout's. Milliseconds after arrival by which its first token should be there."""
    timing: bool | None = None
    """Turnout's. Report [when things happened](deadlines-and-timing.md#timing)."""
    cache_salt: Annotated[str, Field(min_length=1)] | None = None
    """vLLM's. Share computed prefixes [only with requests of the same salt](../explanation/kv.md#salts). An
    empty salt is refused: a tenant whose salt came out empty by mistake would share with all others."""
    prompt_logprobs: int | None = None
    """vLLM's. [Log-probabilities of the prompt](http-api.md#of-the-prompt)."""
    return_token_ids: bool | None = None
    """vLLM's. Return [the tokens' ids](http-api.md#token-ids)."""
    return_tokens_as_token_ids: bool | None = None
    """vLLM's. Name tokens in log-probabilities `token_id:123`."""
    truncate_prompt_tokens: Truncation | None = None
    """vLLM's. Keep only so many of the prompt's last tokens; -1: as many as leave room for `max_tokens`."""
    best_of: Annotated[int | None, CHOICES] = None
    """In chat vLLM's. Generate this many choices and return the [`n` most likely](#the-best-of-several).
    Default: `n`."""
    use_beam_search: bool | None = None
    """vLLM's. [Search for the most likely texts](#beam-search) instead of sampling."""
    beam_width: Annotated[int | None, CHOICES] = None
    """Turnout's. Beams kept at every step, at least `n`. Default: `n` if that is above 1, else 4."""
    length_penalty: float | None = None
    """vLLM's. Of beams: above 0 favours long texts, below 0 short ones."""
    early_stopping: bool | Literal["never"] | None = None
    """vLLM's. Of beams: when the search ends."""
    decoding: str | None = None
    """Turnout's. The name of the [decoding strategy](plugins/decoding.md) to use. Default: the first that
    accepts the other parameters."""
    vllm_xargs: Annotated[dict[str, Any], Field(max_length=limits.EXTRA_ARGS.whole)] | None = None
    """vLLM's. Arguments that [plugins](plugins/logits-processors.md#arguments-of-a-request) take; a name that
    none takes is refused."""

    @field_validator("stop", mode="before", json_schema_input_type=str | list[str] | None)
    @classmethod
    def _stop(cls, value: object) -> object:
        if value is None:
            return None
        strings = [value] if isinstance(value, str) else value
        if not isinstance(strings, list) or not all(isinstance(string, str) for string in strings):
            raise ValueError("a string or a list of strings is expected")
        if len(strings) > limits.STOP_STRINGS.most:
            raise ValueError(f"at most {limits.STOP_STRINGS.whole} strings are expected")
        return strings

    @field_validator("logit_bias", mode="before")
    @classmethod
    def _checked_biases(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        if len(value) > limits.BIASES.most:
            raise ValueError(f"at most {limits.BIASES.whole:,} tokens are expected")
        if not all(_is_token_id(key) for key in value):
            raise ValueError("the keys must be token ids")
        # Only the first fault is left to find: an error is made of each.
        wrong = next((key for key, bias in value.items() if not _is_bias(bias)), None)
        return value if wrong is None else {wrong: value[wrong]}

    @field_validator("early_stopping", mode="before")
    @classmethod
    def _early_stopping(cls, value: object) -> object:
        if value is not None and not isinstance(value, bool) and value != "never":
            raise ValueError('true, false or "never" is expected')
        return value

    @model_validator(mode="after")
    def _check_supported(self) -> Self:
        unknown = self.model_extra or {}
        refuse_unsupported(unknown)
        if unknown:
            logger.debug("ignored unknown fields: %s", ", ".join(unknown))
        if self.stream_options is not None and not self.stream:
            raise RequestError("stream_options is only allowed together with stream", "stream_options")
        if self.stream and self.best_of is not None and self.best_of > (self.n or 1):
            raise RequestError(
                "best_of above n cannot be streamed: which choices are best is known when all have ended",
                "best_of",
            )
        return self

    @contextmanager
    def client_field_names(self) -> Iterator[None]:
        """Make errors raised in the block name the fields as the client knows them."""
        with client_names(self.field_names):
            try:
                yield
            except RequestError as error:
                if error.param == "structured_outputs" and self.structured_outputs is None:
                    error.param = self.structured_field
                raise

    @property
    def field_names(self) -> Mapping[str, str]:
        """`FIELDS`, and those that depend on what the client sent."""
        return self.FIELDS

    @property
    def include_usage(self) -> bool:
        options = self.stream_options
        return options is not None and bool(options.include_usage or options.continuous_usage_stats)

    @property
    def continuous_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.continuous_usage_stats)

    def logprob_count(self) -> int | None:
        """The number of most likely tokens to report at each output position; None: no logprobs."""
        raise NotImplementedError

    def prompt_logprob_count(self) -> int | None:
        """The number of most likely tokens to report at each prompt position; None: no logprobs."""
        return self.prompt_logprobs

    def sampling_params(self, defaults: Mapping[str, Any]) -> SamplingParams:
        """The parameters that the client set; else the model's and the server's; else the API's defaults."""
        given = {name: value for name in SAMPLING_FIELDS if (value := getattr(self, name)) is not None}
        if self.stop:
            given["stop"] = tuple(self.stop)
        if self.stop_token_ids:
            given["stop_token_ids"] = tuple(self.stop_token_ids)
        if self.logit_bias:
            given["logit_bias"] = {int(token): bias for token, bias in self.logit_bias.items()}
        if self.vllm_xargs:
            given["extra_args"] = {name: arg for name, arg in self.vllm_xargs.items() if arg is not None}
        given["structured_outputs"] = self.structured_output
        return SamplingParams(
            **{
                **self.UNSET_SAMPLING,
                **merge_defaults(given, defaults),
                "logprobs": self.logprob_count(),
                "prompt_logprobs": self.prompt_logprob_count(),
            }
        )

    def request_spec(
        self,
        id: str,
        prompt: list[int],
        params: SamplingParams,
        client: str,
        origin: str = "",
        session: str = "",
    ) -> RequestSpec:
        """The request for the engine; `client`: as policies see the client."""
        return RequestSpec(
            id=id,
            prompt=prompt,
            params=params,
            seed=concrete_seed(self.seed),
            priority=self.priority,
            client=bounded_name(client),
            user="" if client == self.user else bounded_name(self.user),
            origin=origin,
            session=bounded_name(session),
            deadline=_seconds(self.deadline_ms),
            ttft_deadline=_seconds(self.ttft_deadline_ms),
            timing=bool(self.timing),
            cache_salt=bounded_name(self.cache_salt),
        )


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _is_bias(value: object) -> bool:
    return type(value) in (int, float) and -MAX_BIAS <= value <= MAX_BIAS  # type: ignore[operator]


def _is_token_id(key: object) -> bool:
    """A JSON key, always a string, spells a token id."""
    return (
        isinstance(key, str)
        and key.isascii()
        and key.isdecimal()
        and len(key) < 20
        and int(key) <= MAX_TOKEN_ID
    )
