"""Bounds on what a request asks for in all: choices, copies of its parameters, log-probabilities, echoes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized

from turnout.core import limits
from turnout.core.errors import RequestError
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams

__all__ = ["check_copies", "check_logprobs", "check_repetition"]


def check_copies(params: SamplingParams, prompts: int) -> None:
    """Raises RequestError for more choices, or copies of the parameters, than a request may have.

    Each prompt is a request of its own to the engine, with its own copy.
    """
    choices = prompts * max(params.n, params.beam_width or 1)
    if choices > limits.SEQUENCES.most:
        raise RequestError(
            f"{prompts:,} prompts with {choices // prompts} choices each are {choices:,} choices; at most "
            f"{limits.SEQUENCES.whole:,} are allowed in one request",
            "n",
        )
    entries = prompts * sum(len(tokens) for _, tokens in params.token_ids())
    if prompts > 1 and entries > limits.COPIES.most:
        raise RequestError(
            f"the lists of logit_bias, allowed_token_ids, stop_token_ids and bad_words have {entries:,} "
            f"entries, counted for each of {prompts:,} prompts; at most {limits.COPIES.whole:,} are allowed: "
            "send fewer prompts in one request",
            "prompt",
        )


def check_logprobs(requests: Sequence[RequestSpec], context: int) -> None:
    """Raises RequestError for a response with more log-probabilities than one may have."""
    params = requests[0].params
    choices = params.n
    lengths = [len(request.prompt) for request in requests]
    for name, count, tokens in (
        ("prompt_logprobs", params.prompt_logprobs, choices * sum(lengths)),
        ("logprobs", params.logprobs, choices * sum(_output(params, context - length) for length in lengths)),
    ):
        if count is not None and (entries := tokens * (count + 1)) > limits.LOGPROB_ENTRIES.most:
            raise RequestError(
                f"{name}={count} of {tokens:,} tokens are {entries:,} log-probabilities; at most "
                f"{limits.LOGPROB_ENTRIES.whole:,} are allowed: ask for fewer tokens or choices",
                name,
            )


def _output(params: SamplingParams, room: int) -> int:
    return max(0, room if params.max_tokens is None else min(params.max_tokens, room))


def check_repetition(name: str, prompts: Iterable[Sized], choices: int) -> None:
    """Raises RequestError for prompts, as texts or tokens, too long to repeat for each of `choices` choices.

    name: the parameter that asks for it.
    """
    size = choices * sum(map(len, prompts))
    if size > limits.REPEATED.most:
        raise RequestError(
            f"{name} of the prompts, for each of {choices} choices, are {size:,} characters or tokens; at "
            f"most {limits.REPEATED.whole:,} are allowed",
            name,
        )
