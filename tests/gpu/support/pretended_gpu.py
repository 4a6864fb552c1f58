"""A GPU for Triton's compiler alone: kernels are compiled to machine code for it, launching does nothing.

For machines without one, where Triton's own `ptxas` still tells whether a kernel compiles, and what it takes
of the card's shared memory and registers. Kernels are compiled for the very arguments that a call gives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import triton
from machine_code import Loop, loops, spilled
from triton.backends.compiler import GPUTarget

__all__ = ["Compiled", "PretendedGpu"]

SHARED = {80: 163 * 1024, 86: 99 * 1024, 89: 99 * 1024, 90: 227 * 1024}
"""Bytes of shared memory that a program may have at most, by compute capability."""


@dataclass(frozen=True)
class Compiled:
    name: str
    shared: int
    spilled: int
    """Bytes of registers that a thread keeps in memory."""
    loops: list[Loop]


@dataclass
class PretendedGpu:
    """A driver for Triton; `install` makes it the only one."""

    capability: int = 90
    kernels: list[Compiled] = field(default_factory=list)

    def install(self) -> None:
        triton.runtime.driver.set_active(self)

    # -------------------------------------------------------------- what Triton asks a driver

    @property
    def utils(self) -> PretendedGpu:
        return self

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {"max_shared_mem": SHARED[self.capability], "multiprocessor_count": 132}

    def launcher_cls(self, source: object, metadata: object) -> Callable[..., None]:
        return lambda *arguments: None

    def load_binary(self, name: str, binary: bytes, shared: int, device: int) -> tuple[Any, ...]:
        self.kernels.append(Compiled(name, shared, spilled(binary), loops(binary)))
        return object(), object(), 0, 0, 1024

    def unload_module(self, module: object) -> None:
        pass
