"""Host numbers onto a device without waiting for it, and back without waiting for more than they take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

__all__ = ["carry", "fetch", "pick_rows", "put_rows"]


def carry(host: npt.NDArray[Any] | Tensor, device: torch.device, out: Tensor | None = None) -> Tensor:
    """`host` on the device; or copied into `out`, as large and contiguous.

    By way of locked memory, which a GPU fetches from by itself and PyTorch keeps until it has: a copy from
    other memory is waited for, with all that was asked of the device before. On a CPU nothing is copied.
    """
    numbers = host if isinstance(host, Tensor) else torch.from_numpy(np.ascontiguousarray(host))
    if device.type == "cuda":
        numbers = numbers.pin_memory()
    if out is not None:
        return out.copy_(numbers.view(out.shape), non_blocking=True)
    return numbers.to(device, non_blocking=True)


def fetch(tensor: Tensor) -> Callable[[], Tensor]:
    """Sends `tensor` to the host. What is returned waits until it is there, and gives it.

    For nothing that was asked of the device after it, as `Tensor.tolist` would. On a CPU nothing is copied.
    """
    if tensor.device.type != "cuda":
        return lambda: tensor
    there = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    there.copy_(tensor, non_blocking=True)
    sent = torch.cuda.Event()  # type: ignore[no-untyped-call]
    sent.record(torch.cuda.current_stream(tensor.device))

    def wait() -> Tensor:
        sent.synchronize()
        return there

    return wait


def pick_rows(tensor: Tensor, rows: list[int]) -> Tensor:
    """As `tensor[rows]`, which waits for a GPU."""
    return tensor.index_select(0, _index(rows, tensor.device))


def put_rows(tensor: Tensor, rows: list[int], values: Tensor) -> None:
    """As `tensor[rows] = values`, which waits for a GPU."""
    tensor.index_copy_(0, _index(rows, tensor.device), values)


def _index(rows: list[int], device: torch.device) -> Tensor:
    return carry(np.array(rows, dtype=np.int64), device)
