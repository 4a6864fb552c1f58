"""Triton kernels over KV pools. Imported only where they run: on a GPU, or under Triton's interpreter."""
