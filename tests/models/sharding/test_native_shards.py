"""Shares of a model in one native call: the kernels add up between the halves of a layer themselves."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import ranks_in_threads
import torch
from family_checkpoints import write_checkpoint
from ranks_in_threads import CONTEXT, logits_of

from turnout.core.errors import ConfigError
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.meeting import Meeting
from turnout.kernels.choice import native_kernels
from turnout.kernels.collectives.shm import SharedMemory
from turnout.kernels.compiled import CpuKernels


@pytest.mark.parametrize("name", ["qwen3", "mistral"])
def test_the_native_stack_adds_up_by_itself(name, tmp_path, monkeypatch):
    try:
        kernels = native_kernels()
    except ConfigError as error:
        pytest.skip(str(error))
    write_checkpoint(name, tmp_path)
    alone = logits_of(tmp_path)
    calls = []
    plain = CpuKernels.layers

    def layers(self, table, step):
        calls.append(bool(step.group))
        return plain(self, table, step)

    monkeypatch.setattr(CpuKernels, "layers", layers)
    monkeypatch.setattr(ranks_in_threads, "CONTEXT", ComputeContext(CONTEXT.device, CONTEXT.dtype, kernels))
    meeting = Meeting.on_this_machine()

    def of_rank(rank):
        with torch.inference_mode():
            return logits_of(tmp_path, SharedMemory(meeting, rank, 2))

    with ThreadPoolExecutor(2) as pool:
        together, nothing = pool.map(of_rank, range(2))
    meeting.close()
    within = 1e-5 * max(1.0, float(alone.abs().max()))
    torch.testing.assert_close(together, alone, atol=within, rtol=0)
    assert (together.argmax(-1) == alone.argmax(-1)).all()
    assert nothing.shape[0] == 0
    assert calls
    assert all(calls)
