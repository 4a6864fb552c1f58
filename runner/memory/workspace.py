"""Measures, at start-up, what a step takes of a GPU's memory beside weights and KV pool."""

from __future__ import annotations

from typing import Protocol

import torch

from turnout.core.interfaces.kv import KVCache, Span
from turnout.core.types.plan import Chunk, Plan
from turnout.runner.execution.model_runner import ModelRunner
from turnout.runner.memory.probes import probe

__all__ = ["CudaMeter", "Meter", "step_bytes"]


class Meter(Protocol):
    """Measures how much memory is allocated at most."""

    def start(self) -> None: ...

    def peak(self) -> int:
        """Returns the bytes beyond those that were allocated at the start."""
        ...


class CudaMeter:
    """Measures PyTorch's allocations on a GPU. Implements Meter."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._before = 0

    def start(self) -> None:
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self._device)
        self._before = torch.cuda.memory_allocated(self._device)

    def peak(self) -> int:
        torch.cuda.synchronize(self._device)
        return torch.cuda.max_memory_allocated(self._device) - self._before


def step_bytes(runner: ModelRunner, cache: KVCache, tokens: int, longest: int, meter: Meter) -> int:
    """Measures the largest step: prompts of `longest` tokens, `tokens` of them together; returns bytes.

    cache: one of its own. What it and its device half hold is overwritten and never released.
    """
    chunks = []
    for start in range(0, tokens, longest):
        sequence = probe(min(longest, tokens - start))
        if cache.reserve([Span(sequence, 0, len(sequence.tokens))]):
            chunks.append(Chunk(sequence, 0, sequence.tokens, 1))
    runner.run(Plan(chunks, []))  # allocates what is kept, such as matrix workspaces
    meter.start()
    runner.run(Plan(chunks, []))
    return meter.peak()
