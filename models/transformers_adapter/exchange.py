"""Exchanges modules of transformers by our layers of the same shape, wherever these compute the same."""

from __future__ import annotations

from torch import nn

from turnout.models.decoder.layers import Embedding

__all__ = ["exchange_layers"]


def exchange_layers(model: nn.Module) -> None:
    """Puts our layers in place, on the same parameters."""
    for name, layer in list(model.named_modules()):
        if type(layer) is nn.Embedding and layer.max_norm is None:
            model.set_submodule(name, _embedding(layer))


def _embedding(like: nn.Embedding) -> Embedding:
    made = Embedding(like.num_embeddings, like.embedding_dim, device="meta")
    made.weight = like.weight
    return made
