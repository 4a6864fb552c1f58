"""GGUF files that ranks divide: blocks are cut between blocks, and never widened."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import ranks_in_threads
import torch
from ranks_in_threads import CONTEXT, ThreadCollective, logits_of, on_grid

from turnout.core.interfaces.compute import ComputeContext
from turnout.core.meeting import Meeting
from turnout.kernels.collectives.shm import SharedMemory
from turnout.kernels.compiled import CpuKernels


@pytest.mark.parametrize("kind", ["Q8_0", pytest.param("Q4_0", marks=pytest.mark.slow)])
def test_ranks_compute_what_one_device_does(
    kind: str, kernels: CpuKernels, gguf_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With native kernels, which hold the blocks, and a vocabulary that the ranks do not divide."""
    file = gguf_file(kind, intermediate=128, vocab=161)
    monkeypatch.setattr(ranks_in_threads, "CONTEXT", ComputeContext(CONTEXT.device, CONTEXT.dtype, kernels))
    alone, meeting = logits_of(file), Meeting.on_this_machine()

    def of_rank(rank: int) -> torch.Tensor:
        with torch.inference_mode():
            return logits_of(file, SharedMemory(meeting, rank, 2))

    with ThreadPoolExecutor(2) as pool:
        together, _ = pool.map(of_rank, range(2))
    meeting.close()
    assert together.shape == (len(ranks_in_threads.PROMPT), 161)
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("whole_experts", [False, True])
@pytest.mark.parametrize("stages", [1, 2])
def test_ranks_divide_experts(
    stages: int,
    whole_experts: bool,
    kernels: CpuKernels,
    gguf_file: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A part of each expert, or some whole."""
    file = gguf_file("Q8_0", "qwen3_moe", intermediate=128, experts=6, top=2, expert_size=64, tied=False)
    monkeypatch.setattr(ranks_in_threads, "CONTEXT", ComputeContext(CONTEXT.device, CONTEXT.dtype, kernels))
    alone = logits_of(file)

    def of_rank(part: ThreadCollective, line: ThreadCollective) -> torch.Tensor:
        return logits_of(file, part, line=line if stages > 1 else None, whole_experts=whole_experts)

    together, *_ = on_grid(2, stages, of_rank)
    torch.testing.assert_close(together, alone, atol=1e-5 * max(1.0, float(alone.abs().max())), rtol=0)


@pytest.mark.parametrize("kind", ["Q8_0", pytest.param("Q4_K", marks=pytest.mark.slow)])
def test_stages_compute_what_one_device_does(kind: str, gguf_file: Callable[..., Path]) -> None:
    file = gguf_file(kind)
    alone = logits_of(file)
    together, _ = on_grid(1, 2, lambda part, line: logits_of(file, part, line=line))
    assert torch.equal(together, alone)
