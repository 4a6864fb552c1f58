"""The checks, one of each kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from turnout.kernels.blocks import BLOCK_TYPES
from turnout.kernels.compiled import CpuKernels
from turnout.kernels.integers import Precision
from turnout.kernels.self_test.attention import attention, attention_over_int8, encoder_attention
from turnout.kernels.self_test.errors import FLOATS, ROWS
from turnout.kernels.self_test.experts import experts, router
from turnout.kernels.self_test.layers import gate, gelu, layer_norm, linear, norm, rotation
from turnout.kernels.self_test.quantized import Dequantized, blocks, integers

__all__ = ["Check", "self_test"]

OF_FLOATS = {
    "linear": linear,
    "norm": norm,
    "gate": gate,
    "layer norm": layer_norm,
    "GELU": gelu,
    "rotation": rotation,
    "attention": attention,
    "attention of encoders": encoder_attention,
    "attention over int8": attention_over_int8,
    "router": router,
    "experts": experts,
}


class Check(NamedTuple):
    """A kernel's largest error, as a part of the largest number of its result."""

    kernel: str
    error: float
    bound: float

    @property
    def passed(self) -> bool:
        return self.error <= self.bound


def self_test(kernels: CpuKernels, dequantized: Dequantized) -> Iterator[Check]:
    """Yields a check of each kernel. dequantized: what blocks of GGUF files stand for."""
    for name, (dtype, bound) in FLOATS.items():
        for kernel, error in OF_FLOATS.items():
            yield Check(f"{kernel}, {name}", _worst(partial(error, kernels, dtype)), bound)
        for kind in BLOCK_TYPES:
            worst = _worst(partial(blocks, kernels, kind, dequantized, dtype))
            yield Check(f"linear, {kind.upper()} in {name}", worst, bound)
    for precision in Precision:
        yield Check(f"linear, {precision.name}", integers(kernels, precision), 2**-6)


def _worst(error: Callable[[int], float]) -> float:
    """error: by the number of rows."""
    return max(error(rows) for rows in ROWS)
