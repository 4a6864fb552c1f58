"""Least squares with coefficients that are not negative.

Lawson and Hanson, "Solving Least Squares Problems", 1974.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Floats", "nonnegative_least_squares"]

Floats = NDArray[np.float64]
TOLERANCE = 1e-10


def nonnegative_least_squares(matrix: Floats, target: Floats) -> Floats:
    """The x >= 0 that minimizes ``|matrix @ x - target|``. matrix: [rows, columns]; target: [rows]."""
    scale = np.linalg.norm(matrix, axis=0)
    scale[scale == 0] = 1.0
    scaled = matrix / scale
    count = matrix.shape[1]
    x, free = np.zeros(count), np.zeros(count, dtype=bool)
    # Each round frees one column that would help; it ends, since the error falls every time.
    for _ in range(10 * count):
        gradient = scaled.T @ (target - scaled @ x)
        if free.all() or gradient[~free].max() <= TOLERANCE * np.abs(target).sum():
            break
        free[np.where(free, -np.inf, gradient).argmax()] = True
        x = _towards(scaled, target, x, free)
    return np.asarray(x / scale)


def _towards(matrix: Floats, target: Floats, x: Floats, free: NDArray[np.bool_]) -> Floats:
    """The best of the free columns alone, or as far as none turns negative.

    Those that would are free no more.
    """
    while True:
        best = np.zeros_like(x)
        best[free] = np.linalg.lstsq(matrix[:, free], target, rcond=None)[0]
        negative = free & (best <= 0)
        if not negative.any():
            return best
        share = np.min(x[negative] / (x[negative] - best[negative]))
        x = x + share * (best - x)
        free &= x > TOLERANCE * max(1.0, x.max())
        x[~free] = 0.0
