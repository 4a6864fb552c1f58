"""Runs a function in several processes, each a rank: python ranks_in_processes.py CHECK KIND SIZE…

PyTorch is imported once, and the ranks are forked, so that a test of four ranks costs one import.
"""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import torch

from turnout.core.interfaces.collective import Collective
from turnout.kernels.collectives import Meeting, open_collective
from turnout.kernels.collectives.nccl import Nccl
from turnout.kernels.collectives.torch_groups import gloo_group


def run_ranks(check: str, kind: str, *sizes: int) -> None:
    """Runs `collective_checks.CHECK` in groups of so many ranks. Raises AssertionError with their words."""
    command = [sys.executable, str(Path(__file__)), check, kind, *map(str, sizes)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-4000:]


def fork_ranks(check: Callable[[Collective], None], kind: str, size: int) -> bool:
    meeting = Meeting.on_this_machine()
    children = [_forked(check, kind, meeting, rank, size) for rank in range(size)]
    meeting.close()
    return not any([os.waitpid(child, 0)[1] for child in children])


def opened(kind: str, meeting: Meeting, rank: int, size: int) -> Collective:
    """``nccl over gloo``: what is done for GPUs, on the CPU."""
    if kind == "nccl over gloo":
        return Nccl(meeting, rank, size, over=gloo_group(meeting, rank, size, 0))
    return open_collective(kind, meeting, rank, size)


def _forked(check: Callable[[Collective], None], kind: str, meeting: Meeting, rank: int, size: int) -> int:
    if child := os.fork():
        return child
    try:
        collective = opened(kind, meeting, rank, size)
        check(collective)
        collective.close()
        os._exit(0)
    except BaseException:
        print(f"rank {rank} of {size}:", traceback.format_exc(), file=sys.stderr, flush=True)
        os._exit(1)


if __name__ == "__main__":
    import collective_checks

    from turnout.kernels.choice import native_kernels

    torch.set_num_threads(1)
    if sys.argv[2] == "shm":
        native_kernels()  # compiled once, not by each rank
    of_rank: Callable[[Collective], None] = getattr(collective_checks, sys.argv[1])
    sys.exit(not all([fork_ranks(of_rank, sys.argv[2], int(size)) for size in sys.argv[3:]]))
