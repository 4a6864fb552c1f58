"""What a step takes of a GPU's memory beside weights and KV pool, measured at start-up."""

from __future__ import annotations

from typing import Protocol

import torch

from turnout.core.interfaces.kv import KVCache, Span
from turnout.core.types.plan import Chunk, Plan
from turnout.runner.execution.model_runner import ModelRunner
from turnout.runner.memory.probes import probe

__all__ = ["CudaMeter", "Meter", "step_bytes"]


class Meter(Protocol):
    """How much memory was allocated at most."""

    def start(self) -> None: ...

    def most(self) -> int:
        """Bytes beyond what was allocated at the start."""
        ...


class CudaMeter:
    """Implements Meter."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._before = 0

    def start(self) -> None:
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self._device)
        self._before = torch.cuda.memory_allocated(self._device)

    def most(self) -> int:
        torch.cuda.synchronize(self._device)
        return torch.cuda.max_memory_allocated(self._device) - self._before


def step_bytes(runner: ModelRunner, cache: KVCache, tokens: int, longest: int, meter: Meter) -> int:
    """What the largest step takes: prompts of `longest` tokens, `tokens` of them together.

    In a pair of its own: what `cache` and its device half hold is overwritten and never given back.
    """
    chunks = []
    for start in range(0, tokens, longest):
        sequence = probe(min(longest, tokens - start))
        if cache.reserve([Span(sequence, 0, len(sequence.tokens))]):
            chunks.append(Chunk(sequence, 0, sequence.tokens, 1))
    runner.run(Plan(chunks, []))  # what is kept from step to step, as the library of matrix products does
    meter.start()
    runner.run(Plan(chunks, []))
    return meter.most()
