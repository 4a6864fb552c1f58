"""Host arrays onto a device without waiting for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

__all__ = ["Staging"]

BUFFERS = 4
"""Transfers that may be under way before one is waited for."""
LEAST = 2**14
"""Bytes of a buffer."""


@dataclass
class _Buffer:
    host: Tensor
    left: torch.cuda.Event
    """Recorded behind the last transfer from it."""


class Staging:
    """Locked host memory, from which a GPU fetches by itself: from other memory copies are waited for.

    On a CPU arrays become tensors, and nothing is copied.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._buffers: list[_Buffer] = []
        self._next = 0

    def carry(self, array: npt.NDArray[Any], out: Tensor | None = None) -> Tensor:
        """The numbers on the device, in the shape of `array`; or into `out`, as large and contiguous."""
        host = torch.from_numpy(np.ascontiguousarray(array))
        if self._device.type != "cuda":
            return host if out is None else out.copy_(host.view(out.shape))
        buffer = self._free(host.nbytes)
        stage = buffer.host[: host.nbytes].view(host.dtype).view(host.shape)
        stage.copy_(host)
        if out is None:
            out = torch.empty(host.shape, dtype=host.dtype, device=self._device)
        out.copy_(stage.view(out.shape), non_blocking=True)
        buffer.left.record()
        return out

    def _free(self, size: int) -> _Buffer:
        """The buffer that was used longest ago, when it may be used again."""
        self._next = (self._next + 1) % BUFFERS
        if len(self._buffers) < BUFFERS:
            left = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._buffers.append(_Buffer(_locked(size), left))
            self._next = len(self._buffers) - 1
            return self._buffers[-1]
        buffer = self._buffers[self._next]
        buffer.left.synchronize()
        if buffer.host.nbytes < size:
            buffer.host = _locked(size)
        return buffer


def _locked(size: int) -> Tensor:
    return torch.empty(max(LEAST, 2 * size), dtype=torch.uint8, pin_memory=True)
