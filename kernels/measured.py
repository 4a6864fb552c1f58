"""Measures once whether the native kernels are faster than PyTorch's operators for the layers of a model.

Where a machine has units that only one of the two uses well, either may be several times as fast. So the
first start with a model's shape measures, for about a third of a second, and keeps the result in the cache.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from turnout.kernels.compiled import CpuKernels
from turnout.kernels.threads import kernel_threads

__all__ = ["LinearShape", "native_slowdown"]

ROWS = (1, 32, 512)
"""Sequences that decode, alone and together, and a chunk of a prompt."""
MAX_PRODUCTS = 2 * 10**9
"""Products of a measurement: fewer rows are taken for larger layers."""
MAX_WEIGHTS = 2**22
"""Weights of a layer: of larger ones a part is measured."""
SECONDS = 0.3
"""After so long, no further turn is taken."""
TURNS = 3
WAKING, DISTURBED = 5e-5, 0.05
"""Seconds, or a turn's share if that is longer, for which its threads may wait for cores."""
REST = 0.005
"""Seconds before one of the two takes its turns: after an operator, PyTorch's threads wait actively for
milliseconds, and would keep native threads from their cores. In a server the two do not take turns."""


class LinearShape(NamedTuple):
    """The width of a linear layer's input, and of its output."""

    inputs: int
    outputs: int


def native_slowdown(kernels: CpuKernels, shapes: Sequence[LinearShape], dtype: torch.dtype) -> float:
    """Returns the time of the native kernels as a multiple of PyTorch's, the geometric mean over `ROWS`.

    shapes: the linear layers of one layer of the model, joined as the kernels join them. What was measured
    before is read from a file in a folder that belongs to the library and this kind of CPU. Where other
    programs have the cores, nothing can be measured: 1 is returned, and the next start tries again.
    """
    notes = kernels.built.notes
    file = None if notes is None else notes / "measured.json"
    key = f"torch {torch.__version__}, {kernel_threads()} threads, {dtype}, {[*map(tuple, shapes)]}"
    known = {} if file is None else _read(file)
    if key not in known:
        found = _measured(kernels, shapes, dtype)
        if found is None:
            return 1.0
        known[key] = found
        if file is not None:
            _write(file, known)
    return known[key]


def _measured(kernels: CpuKernels, shapes: Sequence[LinearShape], dtype: torch.dtype) -> float | None:
    shapes = [LinearShape(each.inputs, min(each.outputs, MAX_WEIGHTS // each.inputs)) for each in shapes]
    weights = [torch.full((outputs, inputs), 0.01, dtype=dtype) for inputs, outputs in shapes]
    packed = [kernels.pack([weight]) for weight in weights]
    products = sum(inputs * outputs for inputs, outputs in shapes)
    counts = sorted({max(1, min(rows, MAX_PRODUCTS // products)) for rows in ROWS})
    deadline = time.perf_counter() + SECONDS
    ratios = []
    for rows in counts:
        given = [torch.full((rows, inputs), 0.01, dtype=dtype) for inputs, _ in shapes]

        def native(given: list[Tensor] = given) -> None:
            for x, layer in zip(given, packed, strict=True):
                kernels.linear(x, layer, None)

        def plain(given: list[Tensor] = given) -> None:
            for x, weight in zip(given, weights, strict=True):
                F.linear(x, weight)

        ratio = _ratio(native, plain, deadline)
        if ratio is None:
            return None
        ratios.append(ratio)
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def _ratio(native: Callable[[], None], plain: Callable[[], None], deadline: float) -> float | None:
    """Compares the best of some turns; None: others did not leave one alone."""
    middle = (time.perf_counter() + deadline) / 2
    quickest = _best(native, middle)
    other = math.inf if quickest == math.inf else _best(plain, deadline)
    return None if other == math.inf else quickest / other


def _best(compute: Callable[[], None], deadline: float) -> float:
    """Returns the seconds of the quickest turn, after one to warm up; infinity: none was undisturbed."""
    time.sleep(REST)
    compute()
    best, turns = math.inf, 0
    while turns < TURNS:
        waited, began = _waited(), time.perf_counter()
        compute()
        now = time.perf_counter()
        if _waited() - waited <= max(WAKING, DISTURBED * (now - began)):
            best, turns = min(best, now - began), turns + 1
        if now > deadline:
            break
    return best


def _waited() -> float:
    """Returns the seconds that this process's threads could have run, and others had their cores; or 0."""
    nanoseconds = 0
    for thread in Path("/proc/self/task").glob("*/schedstat"):
        # It may have ended, and some systems do not tell.
        with contextlib.suppress(OSError, IndexError, ValueError):
            nanoseconds += int(thread.read_text().split()[1])
    return nanoseconds / 1e9


def _read(file: Path) -> dict[str, float]:
    """Returns what was measured before; a file that is missing or damaged is measured anew."""
    try:
        known = json.loads(file.read_text())
        return {str(key): float(value) for key, value in known.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _write(file: Path, known: dict[str, float]) -> None:
    """Where the file cannot be kept, the next start measures again."""
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh = file.with_suffix(f".{time.monotonic_ns()}")
        try:
            fresh.write_text(json.dumps(known, indent=1))
            fresh.replace(file)
        finally:
            fresh.unlink(missing_ok=True)
