"""Runs plans through a model: one forward over a flat, ragged batch."""

from __future__ import annotations

from itertools import chain

import numpy as np
import torch
from torch import Tensor, nn

from turnout.core.interfaces import AttentionBackend
from turnout.core.plan import Chunk, Logits, Plan
from turnout.core.request import Sequence
from turnout.runner.prompt_scores import prompt_scores

__all__ = ["ModelRunner"]


class ModelRunner:
    """A model and its KV memory on one device. Implements Runner."""

    def __init__(self, model: nn.Module, attention: AttentionBackend, device: torch.device) -> None:
        self.model = model
        self.attention = attention
        self.device = device

    @torch.inference_mode()
    def run(self, plan: Plan) -> Logits:
        """Logits [rows, vocab_size] in the model's dtype, for the rows that the plan's chunks want."""
        self.attention.move(plan.moves)
        chunks = plan.chunks
        if not chunks:  # a step that only preempted somebody
            return Logits(torch.empty(0, 0, device=self.device), {})
        self.attention.bind(plan)
        hidden = self.model(self._tokens(chunks), self._positions(chunks), self.attention)
        prompts = prompt_scores(chunks, hidden, self.model.logits)  # type: ignore[arg-type]
        wanted, rows = _wanted_rows(chunks)
        if len(wanted) < len(hidden):
            hidden = hidden[self._on_device(wanted)]
        return Logits(self.model.logits(hidden), rows, prompts)  # type: ignore[operator]  # nn.Module's methods are untyped

    def _tokens(self, chunks: list[Chunk]) -> Tensor:
        count = sum(len(chunk.tokens) for chunk in chunks)
        tokens = chain.from_iterable(chunk.tokens for chunk in chunks)
        return self._on_device(np.fromiter(tokens, dtype=np.int64, count=count))

    def _positions(self, chunks: list[Chunk]) -> Tensor:
        return self._on_device(np.concatenate([np.arange(chunk.start, chunk.end) for chunk in chunks]))

    def _on_device(self, array: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Tensor:
        return torch.from_numpy(array).to(self.device, non_blocking=True)


def _wanted_rows(
    chunks: list[Chunk],
) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.int64]], dict[Sequence, range]]:
    """Which positions of the flat batch get logits, and whose rows of the result those are."""
    pieces, rows, end, row = [np.empty(0, dtype=np.int64)], dict[Sequence, range](), 0, 0
    for chunk in chunks:
        end += len(chunk.tokens)
        if chunk.rows:
            pieces.append(np.arange(end - chunk.rows, end))
            rows[chunk.sequence] = range(row, row + chunk.rows)
            row += chunk.rows
    return np.concatenate(pieces), rows
