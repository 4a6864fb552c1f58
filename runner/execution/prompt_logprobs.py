"""Computes log-probabilities of prompt tokens, for requests that want them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from turnout.core.types.logprobs import TokenLogprobs
from turnout.core.types.plan import Chunk
from turnout.core.types.request import Sequence as TokenSequence
from turnout.kernels.gpu.staging import to_device
from turnout.sampling.logprobs import token_logprobs

__all__ = ["Head", "prompt_scores", "scored_rows"]

Head = Callable[[Tensor], Tensor]
"""From hidden states, [rows, hidden_size], to logits, [rows, vocab_size]."""

ROWS = 64
"""Positions computed at a time: the logits of a whole prompt could be larger than the model."""


def prompt_scores(
    chunks: Sequence[Chunk], hidden: Tensor, logits: Head
) -> dict[TokenSequence, list[TokenLogprobs]]:
    """Returns, for each scored position of `chunks`, the log-probability of the prompt token after it.

    hidden: [tokens, hidden_size] of the flat batch; logits: [rows, hidden_size] -> [rows, vocab_size].
    """
    return {chunk.sequence: _scores(chunk, pieces, logits) for chunk, pieces in scored_rows(chunks, hidden)}


def scored_rows(chunks: Sequence[Chunk], hidden: Tensor) -> Iterator[tuple[Chunk, Sequence[Tensor]]]:
    """Yields each chunk with scored positions, and their hidden states in the pieces to compute at a time."""
    first = 0
    for chunk in chunks:
        if chunk.scored:
            rows = hidden[first + chunk.scored.start - chunk.start : first + chunk.scored.stop - chunk.start]
            yield chunk, torch.split(rows, ROWS)
        first += len(chunk.tokens)


def _scores(chunk: Chunk, pieces: Sequence[Tensor], logits: Head) -> list[TokenLogprobs]:
    request = chunk.sequence.request
    prompt = np.array(request.prompt[chunk.scored.start + 1 : chunk.scored.stop + 1], dtype=np.int64)
    follow = to_device(prompt, pieces[0].device)
    readers = [
        token_logprobs(logits(rows).float(), tokens, [request.params.prompt_logprobs] * len(tokens))
        for rows, tokens in zip(pieces, torch.split(follow, ROWS), strict=True)
    ]
    return [score for read in readers for score in read() if score]
