"""The distinct tokens of a sequence and how often each is in its output, updated with each new token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from turnout.core.interfaces.logits_processor import Row
from turnout.core.types.request import Sequence as TokenSequence
from turnout.kernels.gpu.staging import to_device

__all__ = ["CountTable", "TokenCounts"]

SPARE = 64
"""Room for new tokens before the arrays grow."""


class CountTable(NamedTuple):
    """The distinct tokens of each row, padded by repeating the row's first token."""

    tokens: Tensor
    """int64 [rows, most]."""
    counts: Tensor
    """fp32 [rows, most]: how often each token is in the output; 0 for tokens of the prompt alone."""


class TokenCounts:
    """The token counts of sequences, each kept as long as its sequence exists."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[TokenSequence, _Counts] = WeakKeyDictionary()

    def table(self, rows: Sequence[Row], device: torch.device) -> CountTable:
        found = [self._up_to_date(row.sequence) for row in rows]
        most = max(counts.size + len(row.draft_tokens) for row, counts in zip(rows, found, strict=True))
        tokens = np.empty((len(rows), most), dtype=np.int64)
        times = np.empty((len(rows), most), dtype=np.float32)
        for number, (row, counts) in enumerate(zip(rows, found, strict=True)):
            counts.write(row.draft_tokens, tokens[number], times[number])
        return CountTable(to_device(tokens, device), to_device(times, device))

    def _up_to_date(self, sequence: TokenSequence) -> _Counts:
        counts = self._known.get(sequence)
        if counts is None:
            counts = self._known[sequence] = _Counts(sequence)
        counts.add(sequence.tokens[counts.length :])
        return counts


class _Counts:
    """One sequence's distinct tokens and their counts, in parallel arrays, and the index of each token."""

    def __init__(self, sequence: TokenSequence) -> None:
        prompt = list(dict.fromkeys(sequence.request.prompt))
        self.length = len(sequence.request.prompt)
        """Tokens of the sequence that are in the counts."""
        self._index = {token: index for index, token in enumerate(prompt)}
        self._tokens: npt.NDArray[np.int64] = np.array([*prompt, *[0] * SPARE], dtype=np.int64)
        self._counts: npt.NDArray[np.float32] = np.zeros(len(self._tokens), dtype=np.float32)

    @property
    def size(self) -> int:
        return len(self._index)

    def add(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            index = self._index.setdefault(token, self.size)
            if index == len(self._tokens):
                self._tokens = np.concatenate([self._tokens, np.zeros_like(self._tokens)])
                self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
            self._tokens[index] = token
            self._counts[index] += 1
        self.length += len(tokens)

    def write(
        self, draft_tokens: Sequence[int], tokens: npt.NDArray[np.int64], counts: npt.NDArray[np.float32]
    ) -> None:
        """Writes a row of the table: the sequence's tokens, new ones of `draft_tokens`, then padding."""
        size = self.size
        tokens[:size], counts[:size] = self._tokens[:size], self._counts[:size]
        counts[size:] = 0
        new: dict[int, int] = {}
        for draft_token in draft_tokens:
            index = self._index.get(draft_token)
            if index is None:
                index = new.setdefault(draft_token, size + len(new))
                tokens[index] = draft_token
            counts[index] += 1
        end = size + len(new)
        tokens[end:], counts[end:] = tokens[0], counts[0]
