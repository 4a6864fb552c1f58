"""The system gives a pool's memory ahead of what is written, a little of it, and nothing there changes."""

from __future__ import annotations

import ctypes
import mmap
import sys
import time

import pytest
import torch

from turnout.kernels import CpuKernels, choose_kernels
from turnout.plugins.kv_backends.storage.memory_ahead import MemoryAhead

PAGE = 4096
SLOTS, ROW = 1024, 4 * PAGE  # bytes of a slot, in one layer
DEADLINE = 10


@pytest.fixture(scope="module")
def kernels() -> CpuKernels:
    if sys.platform != "linux":
        pytest.skip("only Linux is asked for memory in advance")
    made, note = choose_kernels("auto", torch.device("cpu"), torch.float32)
    if made is None:
        pytest.skip(note)
    return made


def pool() -> torch.Tensor:
    memory = mmap.mmap(-1, 2 * SLOTS * ROW, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return torch.frombuffer(memory, dtype=torch.float32).view(2, SLOTS, ROW // 4)


def given(layer: torch.Tensor) -> list[int]:
    """The slots of a layer behind whose first number there is memory."""
    begin = layer.data_ptr() // PAGE * PAGE
    pages = (layer.data_ptr() + layer.nbytes - begin + PAGE - 1) // PAGE
    found = (ctypes.c_ubyte * pages)()
    assert not ctypes.CDLL(None).mincore(ctypes.c_void_p(begin), ctypes.c_size_t(pages * PAGE), found)
    return [slot for slot in range(SLOTS) if found[slot * ROW // PAGE] & 1]


def wait_for(tensor: torch.Tensor, slots: range) -> None:
    began = time.monotonic()
    while not all(set(slots) <= set(given(layer)) for layer in tensor):
        assert time.monotonic() - began < DEADLINE, "the system gave no memory"
        time.sleep(0.01)


def test_memory_is_given_ahead(kernels: CpuKernels) -> None:
    tensor = pool()
    ahead = MemoryAhead(kernels, [tensor], bytes_ahead=256 * ROW)  # 64 slots of two layers are half of it
    ahead.reach(31)
    time.sleep(0.1)
    assert not any(given(layer) for layer in tensor)
    tensor[1, 70] = 7
    ahead.reach(32)
    wait_for(tensor, range(64, 128))
    ahead.reach(95)
    assert not {*range(129, SLOTS)} & {*given(tensor[0])}
    assert tensor[1, 70].eq(7).all() and tensor.count_nonzero() == ROW // 4


def test_slots_that_were_passed_are_left_alone(kernels: CpuKernels) -> None:
    """As are those behind the last: whoever writes far on, at the end of a pool, has the rest given."""
    tensor = pool()
    ahead = MemoryAhead(kernels, [tensor], bytes_ahead=256 * ROW)
    ahead.reach(1000)
    wait_for(tensor, range(1000, SLOTS))
    assert not {*range(999)} & {*given(tensor[0])}
    ahead.reach(SLOTS - 1)
    assert not {*range(999)} & {*given(tensor[0])}
