"""Copies between host and device that do not wait for the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

__all__ = ["gather_rows", "scatter_rows", "to_device", "to_host_async"]


def to_device(host: npt.NDArray[Any] | Tensor, device: torch.device, out: Tensor | None = None) -> Tensor:
    """Copies `host` to the device; or into `out`, which is contiguous and holds as many numbers.

    The copy goes through page-locked memory, which a GPU reads by itself and PyTorch keeps until the copy is
    done. A copy from other memory would wait for all earlier work of the device. On a CPU nothing is copied.
    """
    numbers = host if isinstance(host, Tensor) else torch.from_numpy(np.ascontiguousarray(host))
    if device.type == "cuda":
        numbers = numbers.pin_memory()
    if out is not None:
        return out.copy_(numbers.view(out.shape), non_blocking=True)
    return numbers.to(device, non_blocking=True)


def to_host_async(tensor: Tensor) -> Callable[[], Tensor]:
    """Starts a copy of `tensor` to the host; the function it returns waits for the copy and returns it.

    It waits for the work that was queued before the copy, and not for later work, as `Tensor.tolist` would.
    On a CPU nothing is copied.
    """
    if tensor.device.type != "cuda":
        return lambda: tensor
    on_host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    on_host.copy_(tensor, non_blocking=True)
    copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
    copied.record(torch.cuda.current_stream(tensor.device))

    def wait() -> Tensor:
        copied.synchronize()
        return on_host

    return wait


def gather_rows(tensor: Tensor, rows: list[int]) -> Tensor:
    """Returns `tensor[rows]`, without waiting for a GPU as that expression does."""
    return tensor.index_select(0, _index(rows, tensor.device))


def scatter_rows(tensor: Tensor, rows: list[int], values: Tensor) -> None:
    """Sets `tensor[rows] = values`, without waiting for a GPU as that statement does."""
    tensor.index_copy_(0, _index(rows, tensor.device), values)


def _index(rows: list[int], device: torch.device) -> Tensor:
    return to_device(np.array(rows, dtype=np.int64), device)
