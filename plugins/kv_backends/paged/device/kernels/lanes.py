"""One layer of a KV pool, as the kernels read and write it."""

from __future__ import annotations

from typing import Literal, NamedTuple

from torch import Tensor

__all__ = ["Lanes"]


class Lanes(NamedTuple):
    """k, v: [slots, kv_heads, head_dim]; scales: [slots, kv_heads]; the strides of each pair are equal."""

    k: Tensor
    v: Tensor
    k_scales: Tensor | None = None
    v_scales: Tensor | None = None
    fp8: bool = False
    """Whether int8 codes stand for float8_e4m3fn; otherwise they are integers."""

    @property
    def codes(self) -> Literal["none", "int8", "fp8"]:
        if self.k_scales is None:
            return "none"
        return "fp8" if self.fp8 else "int8"

    @property
    def scale_strides(self) -> tuple[int, int]:
        """Between slots and between heads; without meaning if there are no scales."""
        return (0, 0) if self.k_scales is None else (self.k_scales.stride(0), self.k_scales.stride(1))
