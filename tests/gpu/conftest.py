"""Triton's kernels, on a GPU where there is one and otherwise under Triton's interpreter."""

from __future__ import annotations

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined, and Triton defines some itself
# Triton warns where nobody has said whether products and sums are one; warnings are errors here.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
pytest.importorskip("triton", reason="Triton has no build for this platform")


@pytest.fixture
def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
