"""How many threads a step is computed with, by the native kernels and by PyTorch."""

from __future__ import annotations

import torch

__all__ = ["give_back_threads", "kernel_threads", "take_over_threads"]

_taken = 0
"""Threads that the native kernels took over from PyTorch."""


def kernel_threads() -> int:
    """Returns the number of threads of a native kernel: PyTorch's, or as many as were taken over from it."""
    return max(_taken, torch.get_num_threads())


def take_over_threads() -> None:
    """Leaves PyTorch one thread, in the steps that native kernels compute.

    After an operator that PyTorch's threads shared, they wait actively for milliseconds for the next one, on
    the cores that the kernels' threads then need.
    """
    global _taken
    if (threads := torch.get_num_threads()) > 1:
        _taken = threads
        torch.set_num_threads(1)


def give_back_threads() -> None:
    """Gives PyTorch its threads back, for what the rest of the process does with it."""
    global _taken
    if _taken:
        torch.set_num_threads(_taken)
        _taken = 0
