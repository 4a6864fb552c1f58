"""Triton programs that models call between their matrix products."""
