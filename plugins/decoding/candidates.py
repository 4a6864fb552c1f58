"""The rows a strategy chooses a next token for, and the parts of choosing that strategies share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from turnout.core.plan import Logits
from turnout.core.request import Continuation, Request, SamplingParams
from turnout.core.request import Sequence as TokenSequence
from turnout.plugins.decoding.logprobs import token_logprobs
from turnout.plugins.decoding.penalties import adjust

__all__ = ["Candidate", "continue_each"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One token to choose: the next of `sequence`, for choice `index` of its request."""

    sequence: TokenSequence
    index: int

    @property
    def params(self) -> SamplingParams:
        return self.sequence.request.params


def continue_each(
    requests: Sequence[Request], logits: Logits, pick: Callable[[Tensor, list[Candidate]], Tensor]
) -> Iterable[Continuation]:
    """One more token for every choice, by ``pick(logits [rows, vocab] fp32, candidates) -> [rows]``.

    A request's choices part here, after its prompt was computed once.
    """
    candidates = [candidate for request in requests for candidate in _candidates(request)]
    sequences = [candidate.sequence for candidate in candidates]
    raw = logits.of(sequences).float()
    tokens = pick(adjust(raw, sequences), candidates)
    details = token_logprobs(raw, tokens, [candidate.params.logprobs for candidate in candidates])
    for candidate, token, detail in zip(candidates, tokens.tolist(), details, strict=True):
        yield Continuation(candidate.sequence, [token], details=None if detail is None else [detail])


def _candidates(request: Request) -> list[Candidate]:
    if request.births == 1 and request.width > 1:
        return [Candidate(request.live[0], index) for index in range(request.width)]
    return [Candidate(sequence, sequence.index) for sequence in request.live]


def column(values: Iterable[float], like: Tensor) -> Tensor:
    """[rows, 1] on the device and in the dtype of `like`."""
    return torch.tensor([[value] for value in values], dtype=like.dtype).to(like.device, non_blocking=True)
