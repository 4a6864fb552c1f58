"""Chooses device and dtype, and says how much memory a device has."""

from __future__ import annotations

import torch

from turnout.core.errors import ConfigError
from turnout.runner.memory.host_memory import free_address_space, free_host_memory

__all__ = ["choose_device", "choose_dtype", "free_memory"]


def choose_device(name: str) -> torch.device:
    """Returns the device of ``auto``, ``cpu``, ``cuda`` or ``cuda:N``; a GPU with its number.

    Raises ConfigError for a device that is not there.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(f"device {name!r} is not known; use auto, cpu, cuda or cuda:N") from None
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"device {name!r} is not supported; use auto, cpu, cuda or cuda:N")
    if device.type == "cuda":
        _check_cuda(device)
        if device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        torch.cuda.set_device(device)  # Triton launches on the current one, wherever its tensors are
    return device


def _check_cuda(device: torch.device) -> None:
    if not torch.cuda.is_available():
        raise ConfigError(f"device {device} was asked for, but torch sees no GPU; use --device cpu")
    if (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"device {device} is not there: torch sees {torch.cuda.device_count()} GPU(s), from cuda:0 on"
        )


def choose_dtype(name: str, checkpoint: str, device: torch.device) -> torch.dtype:
    """Returns the dtype; ``auto`` is the checkpoint's where the device is fast at it, else float32."""
    if name == "auto":
        name = checkpoint if _is_fast(checkpoint, device) else "float32"
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise ConfigError(f"the checkpoint's dtype {name!r} is not supported; choose one with --dtype")
    return dtype


def _is_fast(dtype: str, device: torch.device) -> bool:
    if device.type == "cuda":
        return dtype != "bfloat16" or torch.cuda.is_bf16_supported(including_emulation=False)
    return dtype == "bfloat16" and bool(torch.cpu.get_capabilities().get("avx512_bf16", False))


def free_memory(device: torch.device) -> int:
    """Returns the bytes that could be allocated now; on a CPU within the limits of group and process."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return min(free_host_memory(), free_address_space())
