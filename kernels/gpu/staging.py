"""Host numbers onto a device without waiting for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

__all__ = ["carry"]


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
