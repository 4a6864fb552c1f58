"""Decides whether an engine computes with Triton's kernels."""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING, Literal

import torch

from turnout.core.errors import ConfigError

if TYPE_CHECKING:
    from turnout.kernels.gpu.layers import GpuKernels

__all__ = ["GpuKernelsOption", "choose_gpu_kernels", "triton_problem"]

GpuKernelsOption = Literal["auto", "triton", "torch"]


def triton_problem(device: torch.device) -> str | None:
    """Says why Triton's kernels cannot run on `device`; None: they can, on a CPU under its interpreter."""
    if importlib.util.find_spec("triton") is None:
        return "the package triton is not installed"
    if device.type == "cpu" and not os.environ.get("TRITON_INTERPRET"):
        return "they need a GPU"
    return None


def choose_gpu_kernels(wanted: GpuKernelsOption, device: torch.device) -> tuple[GpuKernels | None, str]:
    """Returns the kernels, None for PyTorch's operators, and a note for the start-up summary.

    Raises ConfigError where ``triton`` was asked for and is not available.
    """
    if wanted == "torch" or (wanted == "auto" and device.type != "cuda"):
        return None, "GPU kernels torch, as asked for" if wanted == "torch" else ""
    problem = triton_problem(device)
    if problem is None:
        from turnout.kernels.gpu.layers import GpuKernels

        return GpuKernels(), "GPU kernels triton"
    if wanted == "triton":
        raise ConfigError(f"gpu_kernels=triton on device {device}: {problem}; leave it out")
    return None, f"GPU kernels torch, slower than Triton's: {problem}"
