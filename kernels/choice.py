"""Whether an engine computes with the compiled kernels, and what it says about that."""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Literal, NamedTuple

import torch

from turnout.core.errors import ConfigError
from turnout.kernels.build import BuildError, built_library
from turnout.kernels.compiled import Kernels
from turnout.kernels.fused import FusedKernels
from turnout.kernels.gpu.choice import GpuChoice, gpu_kernels

__all__ = ["Choice", "choose_kernels"]

logger = logging.getLogger(__name__)

DTYPES = (torch.float32, torch.bfloat16)


class Choice(NamedTuple):
    kernels: FusedKernels | None
    note: str
    """For the start-up summary; empty where there was nothing to choose."""


def choose_kernels(
    wanted: Literal["auto", "native", "torch"],
    device: torch.device,
    dtype: torch.dtype,
    gpu: GpuChoice = "auto",
) -> Choice:
    """Those of the device: `wanted` says what to compute with on a CPU, `gpu` on a GPU.

    Triton's are also had on a CPU where `gpu` asks for them by name, under its interpreter. Raises
    ConfigError where `native` or `triton` was asked for and cannot be had.
    """
    if gpu == "triton" or (device.type == "cuda" and wanted != "native"):
        return Choice(*gpu_kernels(gpu, device))
    if device.type != "cpu" or wanted == "torch":
        if wanted == "native":
            raise ConfigError(f"cpu_kernels=native are for device cpu, not {device}; leave it out")
        return Choice(None, "CPU kernels torch, as asked for" if device.type == "cpu" else "")
    if dtype not in DTYPES:
        return _without(wanted, f"they compute in float32 and bfloat16, not in {dtype}")
    kernels = _kernels()
    if isinstance(kernels, str):
        return _without(wanted, kernels)
    return Choice(kernels, "CPU kernels native")


def _without(wanted: str, reason: str) -> Choice:
    if wanted == "native":
        raise ConfigError(f"cpu_kernels=native: {reason}; use cpu_kernels=auto to do without")
    return Choice(None, f"CPU kernels torch, slower than compiled ones: {reason}")


@lru_cache
def _kernels() -> Kernels | str:
    """One library for the process; or why there is none."""
    try:
        return Kernels(built_library())
    except (BuildError, OSError) as error:
        return str(error)
