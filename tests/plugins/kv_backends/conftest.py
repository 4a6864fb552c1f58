"""Makes the helper modules of this folder importable by the tests in its subfolders."""

from __future__ import annotations

import pytest
import torch

from turnout.kernels import CpuKernels, choose_kernels, cpu_kernels


@pytest.fixture(scope="module")
def kernels() -> CpuKernels:
    chosen = choose_kernels("auto", torch.device("cpu"), torch.float32)
    found = cpu_kernels(chosen.kernels)
    if found is None:
        pytest.skip(chosen.note)
    return found
