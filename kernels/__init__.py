"""Compiled kernels for CPUs: C++ that the first start compiles for the machine it runs on."""

from turnout.kernels.choice import choose_kernels
from turnout.kernels.library import Kernels

__all__ = ["Kernels", "choose_kernels"]
