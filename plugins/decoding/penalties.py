"""Changes to logits that a request asks for: penalties, bias, and no stop before `min_tokens`.

Rows without such wishes cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from turnout.core.request import SamplingParams
from turnout.core.request import Sequence as TokenSequence

__all__ = ["adjust"]


def adjust(logits: Tensor, sequences: Sequence[TokenSequence]) -> Tensor:
    """The logits [rows, vocab_size] with the wishes of each row's sequence applied; the input stays."""
    rows = [row for row, sequence in enumerate(sequences) if _has_wishes(sequence)]
    if not rows:
        return logits
    changed = logits.clone()
    for row in rows:
        _adjust_row(changed[row], sequences[row])
    return changed


def _has_wishes(sequence: TokenSequence) -> bool:
    params = sequence.request.params
    return bool(params.logit_bias) or _penalised(params) or _too_short(sequence)


def _penalised(params: SamplingParams) -> bool:
    return bool(params.presence_penalty or params.frequency_penalty or params.repetition_penalty != 1)


def _too_short(sequence: TokenSequence) -> bool:
    request = sequence.request
    return len(sequence.tokens) - len(request.prompt) < request.params.min_tokens


def _adjust_row(row: Tensor, sequence: TokenSequence) -> None:
    params = sequence.request.params
    if _penalised(params):
        _penalise(row, sequence, params)
    if params.logit_bias:
        tokens = torch.tensor(list(params.logit_bias), device=row.device)
        row.index_add_(0, tokens, torch.tensor(list(params.logit_bias.values()), device=row.device))
    if _too_short(sequence):
        # Not -inf: a row that holds nothing else would have no distribution left.
        row[list(sequence.request.stop_ids)] = torch.finfo(row.dtype).min


def _penalise(row: Tensor, sequence: TokenSequence, params: SamplingParams) -> None:
    """Repetition over prompt and output; presence and frequency over the output, as OpenAI defines them."""
    tokens = torch.tensor(sequence.tokens, device=row.device)
    if params.repetition_penalty != 1:
        seen = torch.unique(tokens)
        values = row[seen]
        factor = params.repetition_penalty
        row[seen] = torch.where(values > 0, values / factor, values * factor)
    output = tokens[len(sequence.request.prompt) :]
    if len(output):
        produced, counts = torch.unique(output, return_counts=True)
        row[produced] -= params.frequency_penalty * counts + params.presence_penalty
