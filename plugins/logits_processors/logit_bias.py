"""Adds a bias to the logits of single tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

from turnout.core.interfaces.logits_processor import LogitsProcessor, Row
from turnout.core.types.sampling_params import SamplingParams

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["LogitBias"]


class LogitBias(LogitsProcessor):
    """Adds a request's `logit_bias` to the logits of the tokens it names."""

    def wants(self, params: SamplingParams) -> bool:
        return bool(params.logit_bias)

    def apply(self, logits: Tensor, rows: Sequence[Row]) -> None:
        import torch

        from turnout.kernels.gpu.staging import to_device
        from turnout.plugins.logits_processors.token_index import token_index

        biased = ((number, row.params.logit_bias) for number, row in enumerate(rows))
        index = token_index(biased, logits.device)
        values = list(chain.from_iterable(row.params.logit_bias.values() for row in rows))
        logits[index] += to_device(torch.tensor(values, dtype=logits.dtype), logits.device)
