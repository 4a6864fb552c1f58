"""Kernels: for CPUs in C++, which the first start compiles for the machine it runs on; for GPUs in Triton."""

from turnout.kernels.choice import choose_kernels
from turnout.kernels.fused import FusedKernels
from turnout.kernels.library import Kernels

__all__ = ["FusedKernels", "Kernels", "choose_kernels"]
