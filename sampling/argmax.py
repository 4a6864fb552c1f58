"""The token with the largest logit of each row."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["argmax"]


def argmax(logits: Tensor) -> Tensor:
    """Returns int64 [rows] for logits [rows, vocab_size]; of equal logits the first, as `Tensor.argmax` does.

    On a CPU NumPy looks for the index of a maximum by vectors, and PyTorch one number at a time.
    """
    if logits.device.type != "cpu" or logits.dtype != torch.float32:
        return logits.argmax(dim=-1)
    return torch.from_numpy(logits.numpy().argmax(axis=-1))
