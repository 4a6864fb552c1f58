"""What a layer attends to and by which rule, as kernels take it, and how the textbook computes it."""
