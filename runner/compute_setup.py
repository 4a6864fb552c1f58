"""Chooses what an engine computes with: device and dtype, kernels, captured graphs, overlapping steps."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

from turnout.config import EngineConfig
from turnout.core.interfaces.compute import ComputeContext
from turnout.kernels import choose_kernels
from turnout.kernels.threads import kernel_threads
from turnout.runner.execution.capture import Capture, choose_capture
from turnout.runner.memory.control_groups import cpu_quota
from turnout.runner.memory.device import choose_device, choose_dtype

__all__ = ["ComputeSetup"]


@dataclass(frozen=True)
class ComputeSetup:
    """The compute context, which plugins are given, and what only runner and engine need beside it."""

    context: ComputeContext
    kernels_note: str
    """A line for the start-up summary; empty where there was nothing to choose."""
    capture: Capture | None
    """What captures steps in graphs; None: steps are not captured."""
    overlaps: bool
    """Steps are handed to the device before the tokens of earlier steps are known."""

    @classmethod
    def chosen(cls, config: EngineConfig, checkpoint_dtype: str) -> ComputeSetup:
        """Chooses by `config` and the checkpoint's dtype; raises ConfigError for what is not available."""
        device = choose_device(config.device)
        if device.type == "cpu":
            _keep_to_quota()
        dtype = choose_dtype(config.dtype, checkpoint_dtype, device)
        kernels, note = choose_kernels(config.cpu_kernels, device, dtype, config.gpu_kernels)
        capture = choose_capture(device, config.enforce_eager)
        # A CPU computes a step while it is handed over, so there is nothing to do meanwhile.
        overlaps = device.type == "cuda" if config.async_scheduling is None else config.async_scheduling
        return cls(ComputeContext(device, dtype, kernels), note, capture, overlaps)

    @property
    def device(self) -> torch.device:
        return self.context.device

    @property
    def dtype(self) -> torch.dtype:
        return self.context.dtype

    def __str__(self) -> str:
        """``float32 on cpu, 2 threads``."""
        threads = f"{kernel_threads()} threads"
        place = threads if self.device.type == "cpu" else torch.cuda.get_device_name(self.device)
        return f"{str(self.dtype).removeprefix('torch.')} on {self.device}, {place}"


def _keep_to_quota() -> None:
    """Lets PyTorch, and so the kernels, use no more threads than a container's CPU quota keeps running."""
    quota = cpu_quota()
    if quota is not None and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(min(torch.get_num_threads(), max(1, int(quota))))
