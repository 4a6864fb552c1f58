"""Ranks that compute on the CPU as on GPUs: nccl's collectives, over gloo, in steps that are captured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import torch
from replaying import Recorder, Tape
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode

from turnout.core.interfaces.collective import Collective
from turnout.core.meeting import Meeting
from turnout.kernels.collectives.nccl import Nccl
from turnout.kernels.collectives.torch_groups import gloo_group

__all__ = ["as_on_gpus"]


class TapedNccl(Nccl):
    """Captured as NCCL's kernels are: a replay exchanges again what is in the same memory then."""

    def all_reduce(self, x: Tensor) -> Tensor:
        tape = _get_current_dispatch_mode()
        with _disable_current_modes():
            out = super().all_reduce(x)
        if isinstance(tape, Tape):
            tape.note(super().all_reduce, (x,), {}, out)
        return out


def open_over_gloo(name: str, meeting: Meeting, rank: int, size: int, group: int = 0) -> Collective:
    return TapedNccl(meeting, rank, size, over=gloo_group(meeting, rank, size, group))


@contextmanager
def as_on_gpus() -> Iterator[list[Recorder]]:
    """Gives what captures steps, in the order in which it is chosen."""
    recorders: list[Recorder] = []

    def choose_capture(device: torch.device, eager: bool) -> Recorder:
        recorders.append(Recorder())
        return recorders[-1]

    with (
        patch("turnout.runner.ranks.share.open_collective", open_over_gloo),
        patch("turnout.runner.compute_setup.choose_capture", choose_capture),
    ):
        yield recorders
