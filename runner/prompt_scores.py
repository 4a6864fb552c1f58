"""Log-probabilities of prompt tokens, for the requests that want them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from turnout.core.decision import TokenLogprobs
from turnout.core.plan import Chunk
from turnout.core.request import Sequence as TokenSequence
from turnout.plugins.decoding.logprobs import token_logprobs

__all__ = ["prompt_scores"]

ROWS = 64
"""Positions at a time: the logits of a whole prompt could be larger than the model."""


def prompt_scores(
    chunks: Sequence[Chunk], hidden: Tensor, logits: Callable[[Tensor], Tensor]
) -> dict[TokenSequence, list[TokenLogprobs]]:
    """For each scored position of `chunks`, the prompt token that follows it.

    hidden: [tokens, hidden_size] of the flat batch; logits: [rows, hidden_size] -> [rows, vocab_size].
    """
    scores, first = {}, 0
    for chunk in chunks:
        if chunk.scored:
            rows = hidden[first + chunk.scored.start - chunk.start : first + chunk.scored.stop - chunk.start]
            scores[chunk.sequence] = _scores(chunk, rows, logits)
        first += len(chunk.tokens)
    return scores


def _scores(chunk: Chunk, hidden: Tensor, logits: Callable[[Tensor], Tensor]) -> list[TokenLogprobs]:
    request = chunk.sequence.request
    follow = torch.tensor(request.prompt[chunk.scored.start + 1 : chunk.scored.stop + 1]).to(hidden.device)
    scores: list[TokenLogprobs] = []
    for rows, tokens in zip(torch.split(hidden, ROWS), torch.split(follow, ROWS), strict=True):
        wanted = [request.params.prompt_logprobs] * len(tokens)
        scores += [score for score in token_logprobs(logits(rows).float(), tokens, wanted) if score]
    return scores
