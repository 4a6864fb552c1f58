"""The request of llama.cpp's ``POST /infill``, what it means as a completion, and its response."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, UnsetType
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from turnout.core import limits
from turnout.core.errors import RequestError
from turnout.server.protocol.base import FailFastList
from turnout.server.protocol.completions import PlainPrompt
from turnout.server.protocol.token_ids import MAX_TOKEN_ID
from turnout.server.protocol.unsupported import refuse_unsupported

__all__ = [
    "NEVER",
    "ExtraFile",
    "InfillPrompt",
    "InfillRequest",
    "Infilled",
    "Timings",
    "bounded",
    "chosen_fields",
]

NEVER = -10_000.0
"""The bias of a token that is never chosen. llama.cpp has minus infinity, which the engine does not take."""

EDITORS = frozenset(
    {
        "cache_prompt",
        "id_slot",
        "n_cache_reuse",
        "n_indent",
        "n_keep",
        "repeat_last_n",
        "return_tokens",
        "samplers",
        "t_max_predict_ms",
        "t_max_prompt_ms",
        "timings_per_token",
    }
)
"""Fields that editors' plugins for llama.cpp send: hints on time and caching."""


LONGEST_ID = 20
"""Digits from which on a number is a text rather than a token id."""
Biases = list[tuple[int | str, float]]
"""Tokens, or texts whose tokens all get the bias."""
GivenBias = float | Literal[False]


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


class ExtraFile(BaseModel):
    """Another file that helps."""

    model_config = ConfigDict(strict=True)

    filename: str = "tmp"
    """Its name."""
    text: str
    """What it holds."""


class InfillRequest(BaseModel):
    """The body of a request to fill in what is missing."""

    model_config = ConfigDict(strict=True, extra="allow")

    model: str | None = None
    """As for completions."""
    input_prefix: str = ""
    """What stands before the missing part."""
    input_suffix: str = ""
    """What stands after it."""
    input_extra: FailFastList[ExtraFile] = Field(default_factory=list)
    """Other files; the first are left out where not all fit."""
    prompt: str = ""
    """How the missing part begins."""
    n_predict: int = -1
    """Most tokens to generate, if so many fit. -1: as many as fit; 0: the prompt is only computed, for
    requests to come."""
    temperature: float | None = None
    """As for completions."""
    top_k: int | None = None
    """As for completions."""
    top_p: float | None = None
    """As for completions."""
    min_p: float | None = None
    """As for completions."""
    seed: int | None = None
    """-1: drawn anew."""
    stop: Annotated[list[str], BeforeValidator(_listed)] | None = None
    """As for completions."""
    repeat_penalty: float | None = None
    """`repetition_penalty`."""
    presence_penalty: float | None = None
    """As for completions."""
    frequency_penalty: float | None = None
    """As for completions."""
    logit_bias: Biases | None = None
    """Added to the logits of these tokens: pairs of a token id, or of a text, and a number, or an object of
    them. `false`: never chosen."""
    ignore_eos: bool = False
    """Never choose a token that ends the text."""
    json_schema: dict[str, Any] | None = None
    """The form of the missing part, as `structured_outputs.json`."""
    grammar: str | None = None
    """The same by a grammar."""
    response_format: dict[str, Any] | None = None
    """The same as OpenAI gives it."""
    stream: bool = False
    """Answer in pieces."""
    response_fields: list[str] | None = None
    """Return these fields alone, of a stream in the last event; `timings/prompt_n` is one within another.
    Empty: all."""

    @model_validator(mode="after")
    def _supported(self) -> InfillRequest:
        unknown = self.model_extra or {}
        refuse_unsupported({name: value for name, value in unknown.items() if name not in EDITORS})
        if self.n_predict < -1:
            raise RequestError("n_predict must be -1 or more", "n_predict")
        forms = [name for name in ("json_schema", "grammar") if getattr(self, name) is not None]
        if (self.response_format or {"type": "text"}).get("type") != "text":
            forms.append("response_format")
        if len(forms) > 1:
            raise RequestError(f"{' and '.join(forms)} are ways to ask for the same; give one", forms[1])
        return self

    @field_validator("input_extra", mode="after")
    @classmethod
    def _few_enough(cls, value: list[ExtraFile]) -> list[ExtraFile]:
        if len(value) > limits.PROMPTS.most:
            raise ValueError(f"at most {limits.PROMPTS.whole:,} files are expected")
        return value

    @field_validator(
        "logit_bias",
        mode="before",
        json_schema_input_type=list[tuple[int | str, GivenBias]] | dict[str, GivenBias] | None,
    )
    @classmethod
    def _biases(cls, value: object) -> object:
        pairs: Any = [(_key(key), bias) for key, bias in value.items()] if isinstance(value, dict) else value
        if pairs is None:
            return None
        if not isinstance(pairs, list) or not all(map(_is_biased, pairs)):
            raise ValueError("pairs of a token id or a text, and a number or false, are expected")
        if len(pairs) > limits.BIASES.most:
            raise ValueError(f"at most {limits.BIASES.whole:,} tokens are expected")
        length = sum(len(token) for token, _ in pairs if isinstance(token, str))
        if length > limits.BIAS_TEXTS.most:
            raise ValueError(
                f"the texts have {length:,} characters together; at most {limits.BIAS_TEXTS.whole:,} are "
                "expected"
            )
        return [(token, NEVER if bias is False else bounded(bias)) for token, bias in pairs]

    @property
    def size(self) -> int:
        """Characters."""
        files = sum(len(file.filename) + len(file.text) for file in self.input_extra)
        biased = sum(len(token) for token, _ in self.logit_bias or () if isinstance(token, str))
        return files + len(self.input_prefix) + len(self.input_suffix) + len(self.prompt) + biased

    def fields(
        self, prompt: Sequence[int], ends: Sequence[int], biases: Mapping[int, float]
    ) -> dict[str, Any]:
        """The fields of a completion. `ends`: tokens that end the missing part."""
        return {
            "prompt": list(prompt),
            "max_tokens": max(1, self.n_predict) if self.n_predict >= 0 else None,
            "temperature": self.temperature,
            "top_k": self.top_k,
            "top_p": self.top_p,
            "min_p": self.min_p,
            "seed": None if self.seed == -1 else self.seed,
            "stop": self.stop,
            "guided_json": self.json_schema,
            "guided_grammar": self.grammar,
            "response_format": self.response_format,
            "stop_token_ids": None if self.ignore_eos else list(ends) or None,
            "ignore_eos": self.ignore_eos,
            "logit_bias": {str(token): bias for token, bias in biases.items()} or None,
            "repetition_penalty": self.repeat_penalty,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "stream": self.stream,
        }


class InfillPrompt(PlainPrompt):
    """The completion that fills in, with the names that a client of ``/infill`` knows."""

    FIELDS: ClassVar[Mapping[str, str]] = {
        **PlainPrompt.FIELDS,
        "guided_json": "json_schema",
        "guided_grammar": "grammar",
        "max_tokens": "n_predict",
        "repetition_penalty": "repeat_penalty",
    }

    logit_bias: dict[str, float] | None = None

    @field_validator("logit_bias", mode="before")
    @classmethod
    def _checked_biases(cls, value: object) -> object:
        """`InfillRequest` has checked them; its bounds are wider than OpenAI's."""
        return value


class Timings(msgspec.Struct):
    """What an answer took."""

    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float


class Infilled(msgspec.Struct):
    """What is filled in, or a piece of it."""

    index: int
    content: str
    stop: bool
    model: str
    tokens_predicted: int
    tokens_evaluated: int
    stop_type: str | UnsetType = UNSET
    """`eos`, `limit` or `word`; only the last piece has this and what follows."""
    stopping_word: str | UnsetType = UNSET
    truncated: bool | UnsetType = UNSET
    tokens_cached: int | UnsetType = UNSET
    timings: Timings | UnsetType = UNSET


def chosen_fields(body: Infilled, fields: Sequence[str] | None) -> Infilled | dict[str, Any]:
    """A response with these fields alone; None or no field: with all. Fields that it lacks are left out."""
    if not fields:
        return body
    whole, found = msgspec.to_builtins(body), {}
    for path in fields:
        value: Any = whole
        for name in path.split("/"):
            value = value.get(name) if isinstance(value, dict) else None
        if value is not None:
            found[path] = value
    return found


def _is_biased(pair: object) -> bool:
    match pair:
        case [int() | str() as token, int() | float() as bias]:
            if isinstance(token, int) and (isinstance(token, bool) or not 0 <= token <= MAX_TOKEN_ID):
                return False
            return bias is not True
    return False


def _key(key: str) -> int | str:
    """The token id that an object's key spells, or the text that it is."""
    return int(key) if key.isascii() and key.isdecimal() and len(key) < LONGEST_ID else key


def bounded(bias: float) -> float:
    """The bias that the engine takes for one that llama.cpp would."""
    return float(max(NEVER, min(bias, -NEVER)))
