"""What fused layers ask of kernels, whichever device these are for."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

__all__ = ["FusedKernels"]


class FusedKernels(Protocol):
    """Norms, gates and rotations in one pass each. All in the dtype they are given, sums in float32."""

    def norm(self, x: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> Tensor:
        """The root mean square norm of x, to which `delta` is added first, in place. x: [rows, size]."""
        ...

    def gate(self, both: Tensor) -> Tensor:
        """silu of the first half of each row, times the second. both: [rows, 2 * size]."""
        ...

    def rotate(self, x: Tensor, cosine: Tensor, sine: Tensor) -> None:
        """In place. x: [tokens, heads, head_dim], of any stride between tokens; cosine, sine: [tokens, 1,
        head_dim]."""
        ...
