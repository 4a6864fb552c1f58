"""Computes log-probabilities of prompt tokens, for requests that want them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from turnout.core.types.logprobs import TokenLogprobs
from turnout.core.types.plan import Chunk
from turnout.core.types.request import Sequence as TokenSequence
from turnout.kernels.gpu.staging import to_device
from turnout.sampling.logprobs import token_logprobs

__all__ = ["prompt_scores"]

ROWS = 64
"""Positions computed at a time: the logits of a whole prompt could be larger than the model."""


def prompt_scores(
    chunks: Sequence[Chunk], hidden: Tensor, logits: Callable[[Tensor], Tensor]
) -> dict[TokenSequence, list[TokenLogprobs]]:
    """Returns, for each scored position of `chunks`, the log-probability of the prompt token after it.

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
    prompt = np.array(request.prompt[chunk.scored.start + 1 : chunk.scored.stop + 1], dtype=np.int64)
    follow = to_device(prompt, hidden.device)
    readers = [
        token_logprobs(logits(rows).float(), tokens, [request.params.prompt_logprobs] * len(tokens))
        for rows, tokens in zip(torch.split(hidden, ROWS), torch.split(follow, ROWS), strict=True)
    ]
    return [score for read in readers for score in read() if score]
