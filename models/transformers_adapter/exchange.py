"""Exchanges modules of transformers by our layers of the same shape, wherever these compute the same."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor, nn

from turnout.models.decoder.layers import Embedding

__all__ = ["exchange_layers", "without_numbers"]


def exchange_layers(model: nn.Module, read: Collection[str]) -> None:
    """Puts our layers in place, on the same parameters.

    read: names, `without_numbers`, of linear layers by whose weights other modules compute.
    """
    for name, layer in list(model.named_modules()):
        if type(layer) is nn.Embedding and layer.max_norm is None:
            model.set_submodule(name, _embedding(layer))
        elif type(layer) is nn.Linear and without_numbers(name) in read:
            model.set_submodule(name, _KeptLinear(layer))


def without_numbers(name: str) -> str:
    """Returns the name of a module with a star for the number of its layer, of its expert, and so on."""
    return ".".join("*" if part.isdecimal() else part for part in name.split("."))


class _KeptLinear(nn.Module):
    """A linear layer that is neither packed nor quantized, so that its weight is where others look for it."""

    def __init__(self, like: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = like.weight, like.bias

    def forward(self, x: Tensor) -> Tensor:
        return torch.nn.functional.linear(x, self.weight, self.bias)


def _embedding(like: nn.Embedding) -> Embedding:
    made = Embedding(like.num_embeddings, like.embedding_dim, device="meta")
    made.weight = like.weight
    return made
