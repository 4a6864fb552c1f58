"""Restricts the choice to some tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from turnout.core.interfaces.logits_processor import LogitsProcessor, Row
from turnout.core.types.request import Request
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.logits_processors.request_cache import RequestCache

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["AllowedTokenIds"]


class AllowedTokenIds(LogitsProcessor):
    """Forbids every token that is not among a request's `allowed_token_ids`.

    A request has a mask of the whole vocabulary, so a step takes the same time for a list of any length.
    """

    masks = True

    def __init__(self) -> None:
        self._forbidden: RequestCache[Tensor] = RequestCache()

    def wants(self, params: SamplingParams) -> bool:
        return params.allowed_token_ids is not None

    def apply(self, logits: Tensor, rows: Sequence[Row]) -> None:
        import torch

        def others(request: Request) -> Tensor:
            return _others(request, logits)

        masks = {row.request: self._forbidden.get(row.request, others) for row in rows}
        if len(masks) == 1:
            forbidden = masks[rows[0].request]
        else:
            forbidden = torch.stack([masks[row.request] for row in rows])
        # Minus infinity leaves a distribution, since at least one token is allowed.
        logits.masked_fill_(forbidden, float("-inf"))


def _others(request: Request, logits: Tensor) -> Tensor:
    """Whether a token is forbidden: bool [vocab_size], on the device of `logits`."""
    import torch

    from turnout.kernels.gpu.staging import to_device

    forbidden = torch.ones(logits.shape[1], dtype=torch.bool)
    forbidden[list(request.params.allowed_token_ids or ())] = False
    return to_device(forbidden, logits.device)
