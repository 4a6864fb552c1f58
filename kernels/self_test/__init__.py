"""Compares what the native kernels compute on this machine with the same sums in float64."""

from turnout.kernels.self_test.checks import Check, self_test

__all__ = ["Check", "self_test"]
