"""Indexes of tokens in a matrix of logits: which columns of which rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from turnout.kernels.gpu.staging import to_device

__all__ = ["suppress", "token_index"]


def token_index(tokens: Iterable[tuple[int, Collection[int]]], device: torch.device) -> tuple[Tensor, Tensor]:
    """The index of the tokens listed with each row: row and column numbers, both int64 [tokens]."""
    listed = list(tokens)
    lengths = [len(ids) for _, ids in listed]
    rows = np.repeat(np.array([row for row, _ in listed], dtype=np.int64), lengths)
    ids = np.fromiter(chain.from_iterable(ids for _, ids in listed), dtype=np.int64, count=sum(lengths))
    return to_device(rows, device), to_device(ids, device)


def suppress(logits: Tensor, tokens: Iterable[tuple[int, Collection[int]]]) -> None:
    """Makes the tokens listed with each row so unlikely that only other suppressed tokens are as unlikely.

    Their logits become finite numbers, not minus infinity: a row of suppressed tokens alone must still have a
    distribution.
    """
    logits[token_index(tokens, logits.device)] = torch.finfo(logits.dtype).min
