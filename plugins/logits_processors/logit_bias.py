"""Adds a bias to the logits of single tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from turnout.core.interfaces.logits_processor import LogitsProcessor, Row
from turnout.core.types.request import Request
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.logits_processors.request_cache import RequestCache

if TYPE_CHECKING:
    from torch import Tensor

    from turnout.plugins.logits_processors.token_index import Floats, TokenIds

__all__ = ["LogitBias"]

DENSE = 4096
"""Biased tokens from which on a bias is kept for the whole vocabulary: indexing so many takes longer."""
MOST = 1e30
"""Larger biases count as this: float32 would have infinity, and of that alone there is no distribution."""


class LogitBias(LogitsProcessor):
    """Adds a request's `logit_bias` to the logits of the tokens it names."""

    def __init__(self) -> None:
        self._listed: RequestCache[tuple[TokenIds, Floats]] = RequestCache()
        self._dense: RequestCache[Tensor] = RequestCache()

    def wants(self, params: SamplingParams) -> bool:
        return bool(params.logit_bias)

    def apply(self, logits: Tensor, rows: Sequence[Row]) -> None:
        listed = []
        for number, row in enumerate(rows):
            if len(row.params.logit_bias) < DENSE:
                listed.append((number, *self._listed.get(row.request, _listed)))
            else:
                logits[number] += self._dense.get(row.request, lambda request: _dense(request, logits))
        if listed:
            _add(logits, listed)


def _add(logits: Tensor, listed: Sequence[tuple[int, TokenIds, Floats]]) -> None:
    """Adds to the tokens listed with each row the biases listed with it."""
    import numpy as np

    from turnout.kernels.gpu.staging import to_device
    from turnout.plugins.logits_processors.token_index import token_index

    index = token_index([(row, ids) for row, ids, _ in listed], logits.device)
    logits[index] += to_device(np.concatenate([biases for _, _, biases in listed]), logits.device)


def _listed(request: Request) -> tuple[TokenIds, Floats]:
    """The biased tokens and their biases."""
    import numpy as np

    biases = request.params.logit_bias
    ids, values = np.array(list(biases), dtype=np.int64), np.array(list(biases.values()), dtype=np.float64)
    return ids, values.clip(-MOST, MOST).astype(np.float32)


def _dense(request: Request, logits: Tensor) -> Tensor:
    """The bias of each token: fp32 [vocab_size], on the device of `logits`."""
    import torch

    from turnout.kernels.gpu.staging import to_device

    ids, biases = _listed(request)
    dense = torch.zeros(logits.shape[1], dtype=torch.float32)
    dense[torch.from_numpy(ids)] = torch.from_numpy(biases)
    return to_device(dense, logits.device)
