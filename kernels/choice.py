"""Decides which kernels an engine computes with, and words that decision for the start-up summary."""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Literal, NamedTuple

import torch

from turnout.core.errors import ConfigError
from turnout.core.interfaces.compute import FusedKernels
from turnout.kernels.build import BuildError, built_library
from turnout.kernels.compiled import CpuKernels
from turnout.kernels.gpu.choice import GpuKernelsOption, choose_gpu_kernels

__all__ = ["KernelChoice", "choose_kernels", "native_kernels"]

logger = logging.getLogger(__name__)

DTYPES = (torch.float32, torch.bfloat16)


class KernelChoice(NamedTuple):
    kernels: FusedKernels | None
    note: str
    """For the start-up summary; empty where there was nothing to choose."""


def choose_kernels(
    wanted: Literal["auto", "native", "torch"],
    device: torch.device,
    dtype: torch.dtype,
    gpu: GpuKernelsOption = "auto",
) -> KernelChoice:
    """Chooses the kernels of a device: `wanted` is ``--cpu-kernels``, `gpu` is ``--gpu-kernels``.

    Triton's kernels also run on a CPU, under its interpreter, where `gpu` is ``triton``. Raises ConfigError
    where ``native`` or ``triton`` was asked for and is not available.
    """
    if gpu == "triton" or (device.type == "cuda" and wanted != "native"):
        return KernelChoice(*choose_gpu_kernels(gpu, device))
    if device.type != "cpu" or wanted == "torch":
        if wanted == "native":
            raise ConfigError(f"cpu_kernels=native are for device cpu, not {device}; leave it out")
        return KernelChoice(None, "CPU kernels torch, as asked for" if device.type == "cpu" else "")
    if dtype not in DTYPES:
        return _without(wanted, f"they compute in float32 and bfloat16, not in {dtype}")
    kernels = _kernels()
    if isinstance(kernels, Exception):
        return _without(wanted, str(kernels), kernels)
    shipped = ", shipped" if kernels.built.shipped else ""
    return KernelChoice(kernels, f"CPU kernels native, {kernels.variant}{shipped}")


def native_kernels() -> CpuKernels:
    """Returns the compiled kernels. Raises ConfigError, which says why there are none."""
    kernels = _kernels()
    if isinstance(kernels, Exception):
        raise ConfigError(str(kernels)) from kernels
    return kernels


def _without(wanted: str, reason: str, error: Exception | None = None) -> KernelChoice:
    if wanted == "native":
        message = f"cpu_kernels=native: {reason}; use cpu_kernels=auto to do without"
        raise ConfigError(message) from error
    return KernelChoice(None, f"CPU kernels torch, slower than compiled ones: {reason}")


@lru_cache
def _kernels() -> CpuKernels | BuildError | OSError:
    """Returns the library, one for the process; or an error whose text says in a line why there is none."""
    try:
        return CpuKernels(built_library())
    except (BuildError, OSError) as error:
        return error
