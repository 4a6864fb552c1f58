"""Memory that kernels read from end to end."""
