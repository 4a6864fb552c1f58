"""Triton's kernels, on a GPU where there is one and otherwise under Triton's interpreter."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
import torch

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
