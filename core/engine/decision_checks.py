"""Checks what a decoding strategy decided, before it is applied: each check names the request at fault.

The checks of every decision take constant time for a sequence. Those that look at more are for strategies
of third parties (`thorough`), whose tests are not ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from turnout.core import limits
from turnout.core.types.decision import Choice, Completion, Continuation
from turnout.core.types.logprobs import TokenLogprobs
from turnout.core.types.messages.reading import UNREADABLE, check_readable
from turnout.core.types.request import Request
from turnout.core.types.request import Sequence as TokenSequence

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "are_tokens",
    "check_completion",
    "check_continuations",
    "check_details",
    "check_lineage",
    "check_retry",
    "check_tokens",
    "goes_on",
    "held_tokens",
]


def check_tokens(tokens: Iterable[int], vocab_size: int) -> None:
    """Raises ValueError for a token outside the vocabulary: it would be read from beyond the embedding."""
    for token in tokens:
        if type(token) is not int or not 0 <= token < vocab_size:
            raise ValueError(f"gave token {token!r}, which is outside the vocabulary of {vocab_size} tokens")


def are_tokens(tokens: Sequence[int], vocab_size: int) -> bool:
    """Whether `check_tokens` finds no fault, in one go for many tokens."""
    return set(map(type, tokens)) == {int} and min(tokens) >= 0 and max(tokens) < vocab_size


def held_tokens(tokens: Tensor, logits: Tensor, vocab_size: int) -> Tensor:
    """Returns a copy of tokens that the next step is computed from before they are read.

    Each is within the vocabulary. One that was not is found when it is read; it would break the whole step.
    Raises ValueError unless they are int64 [n] on the logits' device.
    """
    if isinstance(logits, list):  # in place of a tensor, on a device of tests
        return [min(max(token, 0), vocab_size - 1) for token in tokens]
    if not isinstance(tokens, type(logits)):
        raise ValueError(f"chose tokens as {type(tokens).__name__}; they should be a tensor")
    if str(tokens.dtype) != "torch.int64" or tokens.dim() != 1 or tokens.device != logits.device:
        found = f"{tokens.dtype} {list(tokens.shape)} on {tokens.device}"
        raise ValueError(f"chose tokens as {found}; they should be int64 [n] on {logits.device}")
    return tokens.clamp(0, vocab_size - 1)


def goes_on(request: Request, parent: TokenSequence) -> bool:
    """Whether `parent` is all that lives of a request, which needs no fork and may get another token.

    Then it may go on by itself, as nearly all do; `check_lineage` judges the others.
    """
    live = request.live
    return (
        len(live) == 1
        and live[0] is parent
        and request.decisions_left > 0
        and (request.forks > 0 or request.width == 1)
    )


def check_lineage(request: Request, parents: Sequence[TokenSequence]) -> None:
    """Raises ValueError unless a request may go on with a child for each of `parents`.

    A client is sent the tokens of a strategy that `streams` as they come, so its choices fork at once, and
    each goes on until it has ended. Others may fork and drop, within the request's width.
    """
    if len(parents) == 1 and goes_on(request, parents[0]):
        return
    if not parents:
        raise ValueError(f"gave no continuation for {request!r}")
    if not set(request.live).issuperset(parents):
        raise ValueError(f"continued a sequence of {request!r} that is no longer live")
    if request.decisions_left <= 0:
        raise ValueError(f"decided about {request!r} more often than it may have tokens")
    if request.decoding.streams:
        _check_choices(request, parents)
    elif len(parents) > request.width:
        raise ValueError(
            f"continued {request!r} with {len(parents)} sequences; `width` said at most {request.width}"
        )


def _check_choices(request: Request, parents: Sequence[TokenSequence]) -> None:
    live = request.live
    if request.forks == 0 and request.width > 1:
        if len(parents) != request.params.n:
            raise ValueError(
                f"continued {request!r} with {len(parents)} of its n={request.params.n} choices; a strategy "
                "that streams forks all of them in its first decision"
            )
    elif len(parents) != len(live) or len(set(parents)) != len(live):
        raise ValueError(
            f"continued {len(set(parents))} of the {len(live)} live choices of {request!r}, with "
            f"{len(parents)} sequences; a strategy that streams continues each once"
        )


def check_continuations(
    request: Request, chosen: Sequence[Continuation], vocab_size: int, *, thorough: bool
) -> None:
    """Raises ValueError, naming the request, for continuations that cannot be applied."""
    if len(chosen) != 1 or not goes_on(request, chosen[0].parent):
        check_lineage(request, [continuation.parent for continuation in chosen])
    for continuation in chosen:
        tokens = continuation.tokens
        if not tokens:
            raise ValueError(f"continued {request!r} with no token")
        check_tokens(tokens[: continuation.parent.room] if thorough else tokens, vocab_size)
        if thorough:
            _check_list(tokens)
            check_details(continuation.details)
            _check_numbers(request, continuation.logprob, continuation.score)
            _check_details(request, tokens, continuation.details)
            _check_stop(request, continuation)


def check_completion(completion: Completion, vocab_size: int, *, thorough: bool) -> None:
    """Raises ValueError for choices that the request cannot end with: too many, too long, or incomplete."""
    request, choices = completion
    if len(choices) > request.params.n:
        raise ValueError(f"completed {request!r} with {len(choices)} choices, n is {request.params.n}")
    for choice in choices:
        _check_choice(request, choice)
        check_tokens(choice.tokens, vocab_size)
        if thorough:
            _check_list(choice.tokens)
            check_details(choice.details)


def check_retry(request: Request) -> None:
    """Counts a `Retry` of the request. Raises ValueError if it has made no progress for too many steps."""
    made, times = request.retried
    times = times + 1 if made == request.output_tokens else 1
    request.retried = (request.output_tokens, times)
    if times > limits.RETRIES.most:
        raise ValueError(f"asked for {request!r} again {times - 1} times in a row, without a decision")


def _check_choice(request: Request, choice: Choice) -> None:
    most, least = request.limit - len(request.prompt), request.params.min_tokens
    if not choice.tokens:
        raise ValueError(f"completed {request!r} with a choice without tokens")
    if len(choice.tokens) > most:
        raise ValueError(
            f"completed {request!r} with a choice of {len(choice.tokens):,} tokens; max_tokens is {most:,}"
        )
    if choice.finish_reason not in ("stop", "length"):
        raise ValueError(f"completed {request!r} with finish_reason {choice.finish_reason!r}")
    before = len(choice.tokens) - (choice.tokens[-1] in request.stop_ids)
    if choice.finish_reason == "stop" and before < least:
        raise ValueError(f"completed {request!r} with a stop after {before} tokens; min_tokens is {least}")
    if choice.stop_token is not None and type(choice.stop_token) is not int:
        raise ValueError(f"completed {request!r} with the stop token {choice.stop_token!r}")
    _check_numbers(request, choice.logprob, *(() if choice.score is None else (choice.score,)))
    _check_sendable((choice.logprob, choice.score), tuple[float, float | None])
    _check_details(request, choice.tokens, choice.details)


def _check_stop(request: Request, continuation: Continuation) -> None:
    """Raises ValueError for a stop token before the request's `min_tokens`."""
    least = request.params.min_tokens
    if not least or request.stop_ids.isdisjoint(continuation.tokens):
        return
    made = len(continuation.parent.tokens) - len(request.prompt)
    stop = next(place for place, token in enumerate(continuation.tokens) if token in request.stop_ids)
    if made + stop < least:
        raise ValueError(f"stopped {request!r} after {made + stop} tokens; min_tokens is {least}")


def _check_numbers(request: Request, *numbers: float) -> None:
    for number in numbers:
        if not isinstance(number, float | int):
            raise ValueError(f"gave {request!r} the log-probability or score {number!r}; expected a number")


def _check_list(tokens: object) -> None:
    """Raises ValueError for tokens that look like a list, such as bytes, and that no message can have."""
    if not isinstance(tokens, list | tuple):
        raise ValueError(f"gave tokens as {type(tokens).__name__}; expected a list")


def check_details(details: Sequence[TokenLogprobs | None] | None) -> None:
    """Raises ValueError for log-probabilities that no message can have."""
    _check_sendable(details, list[TokenLogprobs | None] | None)


def _check_sendable(numbers: object, kind: Any) -> None:
    try:
        check_readable(numbers, kind)
    except UNREADABLE as error:
        raise ValueError(f"gave log-probabilities or scores that cannot be sent: {error}") from error


def _check_details(request: Request, tokens: Sequence[int], details: Sequence[TokenLogprobs] | None) -> None:
    if details is None:
        if request.params.logprobs is not None:
            raise ValueError(f"gave {request!r} no log-probabilities, which it asks for")
        return
    if len(details) != len(tokens) or not all(isinstance(each, TokenLogprobs) for each in details):
        raise ValueError(f"gave {request!r} {len(details)} log-probabilities for {len(tokens)} tokens")
