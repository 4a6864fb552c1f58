"""Token ids that the host does not know yet, looked up where they are."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["look_up"]


def look_up(ids: Tensor, chosen: Sequence[Tensor]) -> Tensor:
    """Token ids, those below 0 looked up in `chosen`, whose tensors are numbered through: -1 is the first.

    All int64 on one device, which nobody waits for.
    """
    if not chosen:
        return ids
    tokens = chosen[0] if len(chosen) == 1 else torch.cat(list(chosen))
    return torch.where(ids < 0, tokens[(-1 - ids).clamp_min(0)], ids)
