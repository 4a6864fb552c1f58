"""What an engine computes with: device and dtype, and kernels and captured graphs where there are some."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from turnout.config import EngineConfig
from turnout.kernels import FusedKernels, Kernels, choose_kernels
from turnout.runner.execution.capture import Capture, choose_capture
from turnout.runner.memory.device import choose_device, choose_dtype

__all__ = ["Computing"]


@dataclass(frozen=True)
class Computing:
    device: torch.device
    dtype: torch.dtype
    kernels: FusedKernels | None
    kernels_note: str
    """For the start-up summary; empty where there was nothing to choose."""
    capture: Capture | None
    overlaps: bool
    """Steps are handed to the device before the tokens of those before are known."""

    @classmethod
    def chosen(cls, config: EngineConfig, stored: str) -> Computing:
        """stored: the checkpoint's own dtype. Raises ConfigError for what cannot be had."""
        device = choose_device(config.device)
        dtype = choose_dtype(config.dtype, stored, device)
        kernels, note = choose_kernels(config.cpu_kernels, device, dtype, config.gpu_kernels)
        capture = choose_capture(device, config.enforce_eager)
        # On a CPU a step is computed while it is handed over: there is nothing to do meanwhile.
        overlaps = device.type == "cuda" if config.async_scheduling is None else config.async_scheduling
        return cls(device, dtype, kernels, note, capture, overlaps)

    @property
    def compiled(self) -> Kernels | None:
        """The kernels, where they are those of a CPU."""
        return self.kernels if isinstance(self.kernels, Kernels) else None

    def __str__(self) -> str:
        """``float32 on cpu, 2 threads``."""
        threads = f"{torch.get_num_threads()} threads"
        place = threads if self.device.type == "cpu" else torch.cuda.get_device_name(self.device)
        return f"{str(self.dtype).removeprefix('torch.')} on {self.device}, {place}"
