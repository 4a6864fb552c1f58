"""Kernels: for CPUs in C++, compiled for this machine at the first start; for GPUs in Triton."""

from turnout.kernels.choice import choose_kernels
from turnout.kernels.compiled import CpuKernels, cpu_kernels

__all__ = ["CpuKernels", "choose_kernels", "cpu_kernels"]
