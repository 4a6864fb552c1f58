"""Whether a checkpoint whose config ties its head to its embedding has a head of its own all the same."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

import torch

from turnout.models.checkpoints.checkpoint import weight_files
from turnout.models.checkpoints.readers.formats import open_weights
from turnout.models.checkpoints.readers.reader import WeightFile

__all__ = ["has_own_head"]

HEADS = ("lm_head", "embed_out", "decoder")
EMBEDDINGS = ("embed_tokens", "wte", "embed_in", "tok_embeddings")
"""What the layers are called that have a weight in common."""


def has_own_head(folder: Path, vocab_size: int) -> bool:
    """Says whether the head's weight is there, with other numbers than the embedding's.

    Some trainers save both under a config that ties them. transformers from 5.0 on compares, and does not
    tie such. Reads both where both are there, and names alone where there is one, as nearly always.
    """
    listed = [(file, key) for file in open_weights(weight_files(folder)) for key in file.names()]
    head = _named(listed, HEADS, vocab_size)
    embedding = None if head is None else _named(listed, EMBEDDINGS, vocab_size)
    if head is None or embedding is None:
        return False
    with head[0].read(head[1]) as one, embedding[0].read(embedding[1]) as other:
        plain = all(each.is_floating_point() and each.itemsize > 1 for each in (one, other))  # not quantized
        return plain and one.shape == other.shape and not torch.equal(one, other.to(one.dtype))


def _named(
    listed: Iterable[tuple[WeightFile, str]], names: Collection[str], rows: int
) -> tuple[WeightFile, str] | None:
    """Returns the weight of a layer of one of these names, and of so many rows, and its file."""
    for file, key in listed:
        layer, _, attribute = key.rpartition(".")
        if attribute == "weight" and layer.rpartition(".")[2] in names and file.shape(key)[0] == rows:
            return file, key
    return None
