"""Indexes of tokens in a matrix of logits: which columns of which rows."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from turnout.kernels.gpu.staging import to_device

__all__ = ["Floats", "TokenIds", "suppress", "token_index"]

TokenIds = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


def token_index(tokens: Iterable[tuple[int, TokenIds]], device: torch.device) -> tuple[Tensor, Tensor]:
    """The index of the tokens listed with each row: row and column numbers, both int64 [tokens]."""
    numbers, listed = zip(*tokens, strict=True)
    rows = np.repeat(np.array(numbers, dtype=np.int64), [len(ids) for ids in listed])
    return to_device(rows, device), to_device(np.concatenate(listed), device)


def suppress(logits: Tensor, tokens: Iterable[tuple[int, TokenIds]]) -> None:
    """Makes the tokens listed with each row so unlikely that only other suppressed tokens are as unlikely.

    Their logits become finite numbers, not minus infinity: a row of suppressed tokens alone must still have a
    distribution.
    """
    logits[token_index(tokens, logits.device)] = torch.finfo(logits.dtype).min
