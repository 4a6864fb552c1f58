"""Linear layers with weights of 8 or 4 bits, for GPUs: Triton programs beside their modules."""
