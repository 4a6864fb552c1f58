"""Triton kernels for what models compute between their matrix products, and copies to and from a GPU."""
