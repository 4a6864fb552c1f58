"""Triton's kernels, on a GPU where there is one and otherwise under Triton's interpreter."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

if TYPE_CHECKING:
    from card_tensors import Tensors

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined, and Triton defines some itself
# Triton warns where it is not said whether products and sums are one; warnings are errors here.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
pytest.importorskip("triton", reason="Triton has no build for this platform")


@pytest.fixture
def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture
def products_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter multiplies by NumPy, whose library has on some CPUs one order of adding up for few rows
    or columns and another for many. A GPU's units have one."""

    def in_order(a: NDArray[Any], b: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
        a, b = a.astype(dtype), b.astype(dtype)
        total = np.zeros((a.shape[0], b.shape[1]), dtype)
        for k in range(a.shape[1]):
            total += a[:, k : k + 1] * b[k]
        return total

    monkeypatch.setattr(np, "matmul", in_order)


@pytest.fixture(scope="session")
def card_guard(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What the card that is not there needs once in a process."""
    from card import load_guard

    from turnout.kernels.build import BuildError

    try:
        load_guard(tmp_path_factory.mktemp("guard"))
    except BuildError as error:
        pytest.skip(str(error))


@dataclass
class RealGpu:
    """Keeps no account; what it would refuse, it refuses."""

    waits: list[str] = field(default_factory=list)
    replays = None


@pytest.fixture
def card(request: pytest.FixtureRequest) -> Iterator[Tensors | RealGpu]:
    """A GPU until the test is over: one that is not there, unless there is one."""
    if torch.cuda.is_available():
        yield RealGpu()
        return
    request.getfixturevalue("card_guard")
    from card import card as pretended

    with pretended() as tensors:
        yield tensors
