"""Computes the rows of a large tensor in several threads, where PyTorch has only one."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise

import torch
from torch import Tensor

from turnout.kernels.threads import kernel_threads

__all__ = ["by_rows"]

MIN_SIZE = 1 << 20
"""Numbers from which on a second thread is quicker than none."""


def by_rows(compute: Callable[[Tensor, slice], Tensor], x: Tensor) -> Tensor:
    """Returns ``compute(x, slice(0, len(x)))``, [rows, …]; on a CPU several threads may compute parts of it.

    compute: takes rows of x, and which these are; what it returns for a row may not depend on the others.
    """
    rows, threads = len(x), min(len(x), kernel_threads())
    if x.device.type != "cpu" or x.numel() < MIN_SIZE or threads <= torch.get_num_threads():
        return compute(x, slice(0, rows))
    bounds = [rows * number // threads for number in range(threads + 1)]
    parts = [slice(*pair) for pair in pairwise(bounds)]
    others = [_pool(threads - 1).submit(compute, x[part], part) for part in parts[1:]]
    first = compute(x[parts[0]], parts[0])
    return torch.cat([first, *(other.result() for other in others)])


@lru_cache(maxsize=1)
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="rows")
