"""A GPU that is not there, for whole engines: PyTorch's names for one, and its tensors, streams and graphs.

Kernels are computed by Triton's interpreter, and all else by PyTorch's operators of the CPU. What goes wrong
on a GPU and nowhere else goes wrong here, too, see `card_tensors` and `card_order`.
"""

from __future__ import annotations

import gc
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from card_order import Event, Stream
from card_tensors import Recording, Tensors
from triton.runtime.interpreter import GridExecutor

from turnout.kernels.build import find_compiler

__all__ = ["card", "load_guard"]

GUARD = """
#include <c10/core/impl/DeviceGuardImplInterface.h>
namespace c10::impl {
struct Pretended final : NoOpDeviceGuardImpl<DeviceType::CUDA> {
  Device exchangeDevice(Device) const override { return Device(DeviceType::CUDA, 0); }
  Device getDevice() const override { return Device(DeviceType::CUDA, 0); }
  Stream getStream(Device) const noexcept override { return Stream(Stream::DEFAULT, getDevice()); }
};
C10_REGISTER_GUARD_IMPL(CUDA, Pretended)
}
"""
"""What PyTorch asks which card is the current one, before it comes to any operator."""
MEMORY = 8 * 2**30


def load_guard(folder: Path) -> None:
    """Once in a process. Raises BuildError where there is no compiler."""
    source, library, root = folder / "guard.cpp", folder / "guard.so", Path(torch.__file__).parent
    source.write_text(GUARD)
    command = [find_compiler(), "-std=c++20", "-shared", "-fPIC", f"-I{root / 'include'}", str(source)]
    subprocess.run([*command, "-o", str(library), f"-L{root / 'lib'}", "-lc10"], check=True)
    torch.ops.load_library(str(library))


HostGenerator = torch.Generator


class _Generator:
    """Draws on the CPU."""

    def __new__(cls, device: object = "cpu") -> Any:
        return HostGenerator()


class Graph:
    """Stands in for torch.cuda.CUDAGraph."""

    def __init__(self, tensors: Tensors) -> None:
        self._tensors = tensors
        self._recording = Recording()

    def capture_begin(self, *_: Any, **__: Any) -> None:
        assert self._tensors.recording is None, "a graph is recorded already"
        assert self._tensors.order.current.number, "nothing can be recorded on the default stream"
        self._tensors.recording = self._recording

    def capture_end(self) -> None:
        assert self._tensors.recording is self._recording, "no graph is recorded"
        self._tensors.recording = None

    def replay(self) -> None:
        self._tensors.replay(self._recording)


@contextmanager
def card(capability: tuple[int, int] = (8, 0)) -> Iterator[Tensors]:
    """While it is on, torch sees a GPU. Raises AssertionError at the end for what was asked out of order."""
    tensors, executed = Tensors(), GridExecutor.__call__

    def launch(self: Any, *args: Any, **kwargs: Any) -> None:
        tensors.launch(lambda *a, **k: executed(self, *a, **k), args, kwargs)

    with pytest.MonkeyPatch.context() as patch:
        for name, stand_in in _names(tensors, capability).items():
            patch.setattr(torch.cuda, name, stand_in)
        patch.setattr(torch, "Generator", _Generator)
        patch.setattr(GridExecutor, "__call__", launch)
        with tensors, _made_on_the_host():
            yield tensors
            gc.collect()  # engines, which want to give back what they have of the card
    assert not tensors.order.faults, tensors.order.faults


def _names(tensors: Tensors, capability: tuple[int, int]) -> dict[str, Any]:
    """What `torch.cuda` is to be, as far as anybody here asks."""
    order, locked = tensors.order, tensors.locked.ranges

    def register(address: int, size: int, flags: int) -> int:
        locked[address] = size
        return 0

    def unregister(address: int) -> int:
        del locked[address]
        return 0

    return {
        "_lazy_init": lambda: None,
        "_sleep": lambda cycles: None,
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "get_device_name": lambda device=None: "a card that is not there",
        "get_device_capability": lambda device=None: capability,
        "is_bf16_supported": lambda including_emulation=True: True,
        "mem_get_info": lambda device=None: (MEMORY, MEMORY),
        "memory_allocated": lambda device=None: 0,
        "memory_reserved": lambda device=None: 0,
        "max_memory_allocated": lambda device=None: 2**20,
        "reset_peak_memory_stats": lambda device=None: None,
        "empty_cache": lambda: None,
        "synchronize": lambda device=None: order.wait_for_all(),
        "set_sync_debug_mode": lambda mode: None,
        "current_stream": lambda device=None: order.current,
        "stream": order.on,
        "Stream": _of(Stream, order),
        "Event": _of(Event, order),
        "CUDAGraph": _of(Graph, tensors),
        "graph_pool_handle": lambda: (0, 1),
        "cudart": lambda: SimpleNamespace(cudaHostRegister=register, cudaHostUnregister=unregister),
        "check_error": lambda code: None,
    }


def _of(kind: type, owner: object) -> type:
    """A class, as PyTorch's are, whose objects know `owner`."""

    def begin(self: Any, *args: Any, **kwargs: Any) -> None:
        kind.__init__(self, owner, *args, **kwargs)  # type: ignore[misc]

    return type(kind.__name__, (kind,), {"__init__": begin})


@contextmanager
def _made_on_the_host() -> Iterator[None]:
    """What `torch.tensor` makes of numbers, which otherwise comes to the card unseen."""
    before = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(True)
    try:
        yield
    finally:
        torch._C._set_only_lift_cpu_tensors(before)
