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
    command = [*find_compiler(), "-std=c++20", "-shared", "-fPIC", f"-I{root / 'include'}", str(source)]
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

    def capture_begin(self, pool: object = None, capture_error_mode: str = "global") -> None:
        assert self._tensors.recording is None, "a graph is recorded already"
        assert self._tensors.order.current.number, "nothing can be recorded on the default stream"
        self._tensors.recording = self._recording

    def capture_end(self) -> None:
        assert self._tensors.recording is self._recording, "no graph is recorded"
        self._tensors.recording = None

    def replay(self) -> None:
        self._tensors.replay(self._recording)


@contextmanager
def card() -> Iterator[Tensors]:
    """While it is on, torch sees a GPU. Raises AssertionError at the end for what was asked out of order."""
    tensors, executed = Tensors(), GridExecutor.__call__

    def launch(self: Any, *args: Any, **kwargs: Any) -> None:
        tensors.launch(lambda *a, **k: executed(self, *a, **k), args, kwargs)

    with pytest.MonkeyPatch.context() as patch:
        for name, stand_in in _names(tensors).items():
            patch.setattr(torch.cuda, name, stand_in, raising=False)  # a build for CPUs lacks some
        for name, below in _driver(tensors).items():
            patch.setattr(torch._C, name, below, raising=False)
        patch.setattr(torch, "Generator", _Generator)
        patch.setattr(GridExecutor, "__call__", launch)
        with tensors, _made_on_the_host():
            yield tensors
            gc.collect()  # engines, which want to give back what they have of the card
    assert not tensors.order.faults, tensors.order.faults


def _names(tensors: Tensors) -> dict[str, Any]:
    """What `torch.cuda` is to have in place of its own; the rest checks what it is given."""
    order = tensors.order

    def current_stream(device: Any = None) -> Stream:
        assert torch.cuda._utils._get_device_index(device, optional=True) == 0
        return order.current

    properties = SimpleNamespace(
        name="a card that is not there", major=8, minor=0, shared_memory_per_block_optin=99 * 1024
    )
    return {
        "_lazy_init": lambda: None,
        "_sleep": lambda cycles: None,
        "_exchange_device": lambda device: 0,
        "_maybe_exchange_device": lambda device: 0,
        "_get_device_properties": lambda device: properties,
        "is_available": lambda: True,
        "is_bf16_supported": lambda including_emulation=True: True,
        "device_count": lambda: 1,
        "current_stream": current_stream,
        "stream": order.on,
        "Stream": _of(Stream, order),
        "Event": _of(Event, order),
        "CUDAGraph": _of(Graph, tensors),
        "graph_pool_handle": lambda: (0, 1),
        "cudart": lambda: _Runtime(tensors.locked.ranges),
        "check_error": lambda code: None,
    }


def _driver(tensors: Tensors) -> dict[str, Any]:
    """What PyTorch's own functions of that module ask."""
    return {
        "_cuda_setDevice": lambda device: None,
        "_cuda_getDevice": lambda: 0,
        "_cuda_synchronize": tensors.order.wait_for_all,
        "_cuda_resetPeakMemoryStats": lambda device: None,
        "_cuda_set_sync_debug_mode": lambda mode: None,
    }


class _Runtime:
    """Stands in for what ``torch.cuda.cudart()`` gives."""

    def __init__(self, locked: dict[int, int]) -> None:
        self._locked = locked

    def cudaHostRegister(self, address: int, size: int, flags: int) -> int:
        self._locked[address] = size
        return 0

    def cudaHostUnregister(self, address: int) -> int:
        del self._locked[address]
        return 0

    def cudaMemGetInfo(self, device: int) -> tuple[int, int]:
        return MEMORY, MEMORY


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
