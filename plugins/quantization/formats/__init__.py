"""Checkpoints that were quantized beforehand: how their tensors are laid out."""
