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
    rows = _rows(requests)
    sequences = [row.sequence for row in rows]
    raw = logits.of(sequences).float()
    tokens = pick(adjust(raw, rows), rows)
    on_host = to_host_async(tokens)
    wanted = [sequence.request.spec.params.logprobs for sequence in sequences]
    details = None if wanted.count(None) == len(wanted) else token_logprobs(raw, tokens, wanted)
    return Chosen(sequences, tokens, lambda: on_host().tolist(), details)


def _rows(requests: Sequence[Request]) -> list[Row]:
    rows = list[Row]()
    for request in requests:
        live = request.live
        if request.forks == 0 and request.width > 1:
            rows += [Row(live[0], index) for index in range(request.width)]
        elif len(live) == 1:  # nearly always
            rows.append(Row(live[0], live[0].index))
        else:
            rows += [Row(sequence, sequence.index) for sequence in live]
    return rows
