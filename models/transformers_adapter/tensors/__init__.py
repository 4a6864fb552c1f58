"""Where a checkpoint's tensors go in a model of transformers."""
