"""One more token for each sequence: the part that strategies with one token a step have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from turnout.core.engine.logits_processing import adjust
from turnout.core.interfaces.logits_processor import Row
from turnout.core.types.decision import Chosen
from turnout.core.types.plan import Logits
from turnout.core.types.request import Request
from turnout.kernels.gpu.staging import to_host_async
from turnout.sampling.logprobs import token_logprobs

__all__ = ["continue_each"]


def continue_each(
    requests: Sequence[Request], logits: Logits, pick: Callable[[Tensor, list[Row]], Tensor]
) -> Chosen:
    """Continues every choice by one token, which ``pick(logits [rows, vocab] fp32, rows) -> [rows]`` chooses.

    A request with several choices forks here, after its prompt was computed once.
    """
    rows = [row for request in requests for row in _rows(request)]
    raw = logits.of(row.sequence for row in rows).float()
    tokens = pick(adjust(raw, rows), rows)
    on_host = to_host_async(tokens)
    details = token_logprobs(raw, tokens, [row.params.logprobs for row in rows])
    return Chosen([row.sequence for row in rows], tokens, lambda: on_host().tolist(), details)


def _rows(request: Request) -> list[Row]:
    if request.forks == 0 and request.width > 1:
        return [Row(request.live[0], index) for index in range(request.width)]
    return [Row(sequence, sequence.index) for sequence in request.live]
