"""Kernels: for CPUs in C++, which the first start compiles for the machine it runs on; for GPUs in Triton."""

from turnout.kernels.choice import choose_kernels
from turnout.kernels.compiled import Kernels
from turnout.kernels.fused import FusedKernels

__all__ = ["FusedKernels", "Kernels", "choose_kernels"]
