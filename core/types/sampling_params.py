"""How a request's tokens are chosen and when they end."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator
from numbers import Integral, Real
from typing import Any, Literal

import msgspec

from turnout.core import limits
from turnout.core.errors import RequestError
from turnout.core.types.extra_args import ExtraArg, check_extra_args
from turnout.core.types.param_groups import BEAM_SEARCH, SAMPLING
from turnout.core.types.param_lists import check_param_lists
from turnout.core.types.structured_outputs import StructuredOutputs

__all__ = ["RANGES", "SamplingParams", "concrete_seed"]


class SamplingParams(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """How a request's tokens are chosen and when they end. Names and meanings are vLLM's.

    None for a list or a dictionary counts as not given. Raises RequestError, with the field's name.
    """

    n: int = 1
    """Choices to return for one prompt."""
    temperature: float = 1.0
    """0 is greedy."""
    top_p: float = 1.0
    """Keeps the most likely tokens that together have this probability."""
    top_k: int = 0
    """Keeps the k most likely tokens; 0 (or -1) keeps all."""
    min_p: float = 0.0
    """Drops tokens less likely than this fraction of the most likely one."""
    seed: int | None = None
    """None: drawn when the request is submitted."""
    max_tokens: int | None = 16
    """None: as many as the model's context leaves room for."""
    min_tokens: int = 0
    """Output tokens before which there is no end-of-sequence or stop token."""
    stop: tuple[str, ...] = ()
    """Strings that end the text; not part of it unless `include_stop_str_in_output`."""
    stop_token_ids: tuple[int, ...] = ()
    """Tokens that end the output, besides the model's own."""
    include_stop_str_in_output: bool = False
    """See ``stop``."""
    ignore_eos: bool = False
    """Whether the output goes on after the model's own end-of-sequence tokens."""
    presence_penalty: float = 0.0
    """Subtracted from the logit of each token that the output has."""
    frequency_penalty: float = 0.0
    """Subtracted once for each time that the output has the token."""
    repetition_penalty: float = 1.0
    """Over prompt and output, multiplicative; 1: no penalty (Keskar et al. 2019)."""
    logit_bias: dict[int, float] = {}
    """Added to the logits of these tokens."""
    allowed_token_ids: tuple[int, ...] | None = None
    """The only tokens to choose among; None: all."""
    bad_words: tuple[str, ...] = ()
    """Words that must not be produced; the server, which has the tokenizer, adds `bad_words_token_ids`."""
    bad_words_token_ids: tuple[tuple[int, ...], ...] = ()
    """Token sequences that must not be produced."""
    structured_outputs: StructuredOutputs | None = None
    """The form that the output must have."""
    logprobs: int | None = None
    """Returns the log-probability of the chosen token and of this many most likely ones; None: neither."""
    skip_special_tokens: bool = True
    """Whether special tokens are left out of the text."""
    prompt_logprobs: int | None = None
    """Returns the log-probability of each prompt token and of this many most likely ones; None: neither."""
    best_of: int | None = None
    """Choices to generate, of which the `n` of highest cumulative log-probability are returned; None: `n`."""
    use_beam_search: bool = False
    """Searches for the most likely texts instead of sampling."""
    beam_width: int | None = None
    """Beams kept in each step; None: `n` if that is above 1, else the strategy's default."""
    length_penalty: float = 1.0
    """A finished beam's score is its cumulative log-probability by its length to this power."""
    early_stopping: bool | Literal["never"] = False
    """When to end once `beam_width` beams are finished: at once (True), when the best running beam would not
    rank among them as it is (False), or when it could not however it continued (``never``)."""
    decoding: str | None = None
    """The name of the decoding strategy to use; None: the first that accepts the other parameters."""
    extra_args: dict[str, ExtraArg] = {}
    """Arguments for plugins, by the names that they declare."""

    def __post_init__(self) -> None:
        self._take_lists_for_tuples()
        self._take_mappings()
        for name, kind, low, high in RANGES:
            value: Any = getattr(self, name)
            if value is None and name in _OPTIONAL:
                continue
            if not isinstance(value, kind) or isinstance(value, bool):
                what = "an integer" if kind is Integral else "a number"
                raise RequestError(f"{name} must be {what}, not {_short(value)}", name)
            if not _within(value, low, high):
                raise RequestError(f"{name} must be between {low:,} and {high:,}, not {_short(value)}", name)
        if self.top_p == 0:
            raise RequestError("top_p must be above 0 and at most 1, not 0", "top_p")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise RequestError(
                f"min_tokens ({self.min_tokens}) must not exceed max_tokens ({self.max_tokens})", "min_tokens"
            )
        check_param_lists(self)
        check_extra_args(self.extra_args)
        if self.decoding is not None and not isinstance(self.decoding, str):
            raise RequestError(f"decoding must be a strategy's name, not {_short(self.decoding)}", "decoding")
        if self.structured_outputs is not None:
            self._check_structured_outputs()
        self._check_groups()

    def _take_lists_for_tuples(self) -> None:
        for name in _LISTS:
            value: Any = getattr(self, name)
            if name == "stop" and isinstance(value, str):
                value = (value,)
            if value is None:
                if name in _OPTIONAL:
                    continue
                value = ()
            msgspec.structs.force_setattr(self, name, _as_tuple(name, value))
        words = tuple(_as_tuple("bad_words_token_ids", word) for word in self.bad_words_token_ids)
        msgspec.structs.force_setattr(self, "bad_words_token_ids", words)

    def _take_mappings(self) -> None:
        for name in ("logit_bias", "extra_args"):
            if getattr(self, name) is None:
                msgspec.structs.force_setattr(self, name, {})
        if not isinstance(self.logit_bias, dict):
            raise RequestError(
                f"logit_bias must be a dictionary, not {_short(self.logit_bias)}", "logit_bias"
            )

    def _check_structured_outputs(self) -> None:
        name = "structured_outputs"
        if not isinstance(self.structured_outputs, StructuredOutputs):
            given = _short(self.structured_outputs)
            raise RequestError(f"{name} must be a StructuredOutputs, not {given}", name)
        if self.allowed_token_ids is not None:
            raise RequestError(f"{name} and allowed_token_ids both say what may come; give one", name)

    def _check_groups(self) -> None:
        """Raises RequestError for parameters that contradict each other."""
        if not isinstance(self.use_beam_search, bool):
            raise RequestError("use_beam_search must be true or false", "use_beam_search")
        if not isinstance(self.early_stopping, bool) and self.early_stopping != "never":
            raise RequestError('early_stopping must be true, false or "never"', "early_stopping")
        if self.best_of is not None and self.best_of < self.n:
            raise RequestError(f"best_of ({self.best_of}) must be at least n ({self.n})", "best_of")
        if self.use_beam_search:
            self._check_beams()
            return
        for name, nothing in BEAM_SEARCH.items():
            if getattr(self, name) not in nothing:
                raise RequestError(f"{name} needs use_beam_search to be true", name)

    def _check_beams(self) -> None:
        if self.best_of is not None and self.best_of != self.n:
            raise RequestError(
                "best_of does not go with beam search; beam_width is how many are kept", "best_of"
            )
        if self.beam_width is not None and self.n > self.beam_width:
            raise RequestError(f"n ({self.n}) must not exceed beam_width ({self.beam_width})", "n")
        for name, nothing in SAMPLING.items():
            value = getattr(self, name)
            if value not in nothing:
                raise RequestError(
                    f"{name} ({value:g}) is for sampling and does not go with beam search, which draws "
                    "nothing; leave it out",
                    name,
                )

    @property
    def greedy(self) -> bool:
        """Temperature 0, and no beam search."""
        return self.temperature == 0 and not self.use_beam_search

    @property
    def sampled(self) -> bool:
        """A temperature above 0, and no beam search."""
        return self.temperature > 0 and not self.use_beam_search

    def generating(self) -> SamplingParams:
        """Returns what to ask the engine for: `best_of` choices, with the log-probabilities to rank them."""
        if self.best_of is None:
            return self
        ranked = 0 if self.logprobs is None and self.best_of > self.n else self.logprobs
        return msgspec.structs.replace(self, n=self.best_of, best_of=None, logprobs=ranked)

    def token_ids(self) -> Iterator[tuple[str, Collection[int]]]:
        """Yields the token ids in each field, with the name of the field."""
        yield "stop_token_ids", self.stop_token_ids
        yield "logit_bias", self.logit_bias
        yield "allowed_token_ids", self.allowed_token_ids or ()
        for word in self.bad_words_token_ids:
            yield "bad_words_token_ids", word


def concrete_seed(seed: int | None) -> int:
    """Returns the seed that a client gave; draws one for None, so that every request can be repeated."""
    return secrets.randbits(63) if seed is None else seed


RANGES: tuple[tuple[str, type, float, float], ...] = (
    ("n", Integral, 1, limits.CHOICES.whole),
    ("temperature", Real, 0, 100),
    ("top_p", Real, 0, 1),
    ("top_k", Integral, -1, 2**31 - 1),
    ("min_p", Real, 0, 1),
    ("seed", Integral, -(2**63), 2**63 - 1),
    ("max_tokens", Integral, 1, 2**31 - 1),
    ("min_tokens", Integral, 0, 2**31 - 1),
    ("presence_penalty", Real, -2, 2),
    ("frequency_penalty", Real, -2, 2),
    ("repetition_penalty", Real, 0.01, 100),
    ("logprobs", Integral, 0, limits.LOGPROBS.whole),
    ("prompt_logprobs", Integral, 0, limits.LOGPROBS.whole),
    ("best_of", Integral, 1, limits.CHOICES.whole),
    ("beam_width", Integral, 1, limits.CHOICES.whole),
    ("length_penalty", Real, -10, 10),
)
"""The type of each number, its least and its largest value. A number that is missing here is not checked."""
_OPTIONAL = frozenset(
    {"seed", "max_tokens", "logprobs", "prompt_logprobs", "allowed_token_ids", "best_of", "beam_width"}
)
"""Fields that may be None."""
_LISTS = ("stop", "stop_token_ids", "allowed_token_ids", "bad_words", "bad_words_token_ids")
"""Fields that take a list, and keep it as a tuple."""


def _as_tuple(name: str, value: object) -> tuple[Any, ...]:
    if not isinstance(value, tuple | list):
        raise RequestError(f"{name} must be a list, not {_short(value)}", name)
    return tuple(value)


def _within(value: Any, low: float, high: float) -> bool:
    """Whether a value is in a range; False for NaN."""
    return bool(low <= value <= high)


def _short(value: object) -> str:
    """Formats a value for a message, shortened: a number can have thousands of digits."""
    try:
        text = repr(value)
    except ValueError:  # Python does not print integers that long
        return "a huge number"
    return text if len(text) <= 40 else f"{text[:37]}..."
