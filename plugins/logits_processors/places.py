"""Places in a matrix of logits: which columns of which rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from turnout.kernels.gpu.staging import to_device

__all__ = ["hold_back", "places"]


def places(columns: Iterable[tuple[int, Collection[int]]], device: torch.device) -> tuple[Tensor, Tensor]:
    """An index of the columns listed with each row: row numbers and column numbers, int64 [places]."""
    listed = list(columns)
    lengths = [len(ids) for _, ids in listed]
    rows = np.repeat(np.array([row for row, _ in listed], dtype=np.int64), lengths)
    ids = np.fromiter(chain.from_iterable(ids for _, ids in listed), dtype=np.int64, count=sum(lengths))
    return to_device(rows, device), to_device(ids, device)


def hold_back(logits: Tensor, columns: Iterable[tuple[int, Collection[int]]]) -> None:
    """Make tokens so unlikely that they are chosen only where all others are held back too.

    Not minus infinity: a row that holds nothing else would have no distribution left.
    """
    logits[places(columns, logits.device)] = torch.finfo(logits.dtype).min
