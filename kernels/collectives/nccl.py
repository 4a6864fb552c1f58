"""Collectives between GPUs, by NCCL. Not yet measured on a machine with several of them."""

from __future__ import annotations

import torch
from torch import Tensor, distributed
from torch.nn.functional import pad

from turnout.core.errors import ConfigError
from turnout.core.meeting import Meeting
from turnout.kernels.collectives.over_torch import OverTorch
from turnout.kernels.collectives.rank_order import part_of, summed
from turnout.kernels.collectives.torch_groups import TorchGroup, as_collective_errors, nccl_group

__all__ = ["Nccl"]


class Nccl(OverTorch):
    """Implements Collective for tensors on this rank's GPU. Calls only queue work there, so that they can be
    captured in graphs; `barrier` waits for it.

    NCCL's own sum takes another order for another length, and so depends on the batch. Here each rank gets
    one part of the tensor from all others, adds them in rank order, and all gather the sums: the same bytes
    on the links as a ring's.
    """

    name = "nccl"

    def __init__(
        self, meeting: Meeting, rank: int, size: int, group: int = 0, over: TorchGroup | None = None
    ) -> None:
        """over: for tests, a group of another backend. Raises ConfigError where there is no NCCL."""
        if over is None:
            if not (distributed.is_nccl_available() and torch.cuda.is_available()):
                raise ConfigError(
                    "the collective nccl needs GPUs, and a PyTorch built with NCCL; between processes that "
                    "compute on CPUs use shm or gloo"
                )
            over = nccl_group(meeting, rank, size, group)
            self._device = torch.device("cuda", torch.cuda.current_device())
        else:
            self._device = torch.device("cpu")
        super().__init__(over, rank, size)

    def all_reduce(self, x: Tensor) -> Tensor:
        numbers = x.reshape(-1)
        length = len(numbers)
        sums = self._sums(pad(numbers, (0, -length % self.size)))
        return x.copy_(self.all_gather(sums)[:length].view(x.shape))

    def reduce_scatter(self, x: Tensor) -> Tensor:
        part = part_of(x, self.rank, self.size)
        return self._sums(x.reshape(-1)).view(x[part].shape)

    def barrier(self) -> None:
        """Returns once all ranks have called it, and the work that they queued before is done."""
        self._of_all(torch.zeros(1, device=self._device))
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def abort(self) -> None:
        if self._device.type == "cuda":
            self._group.abort()

    def _sums(self, numbers: Tensor) -> Tensor:
        """Returns this rank's part of the sums over ranks. numbers: [size * n] to [n]."""
        mine = torch.empty_like(numbers)
        with as_collective_errors(self.name):
            sent = numbers.contiguous().view(torch.uint8)
            self._group.alltoall_base(mine.view(torch.uint8), sent, [], []).wait()
        return summed(mine.view(self.size, -1).unbind())
