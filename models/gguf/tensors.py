"""Which tensors of a GGUF file are which of a Hugging Face checkpoint, and how they differ."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from torch import Tensor

from turnout.core.errors import ModelError
from turnout.models.gguf.architectures import TOP, Architecture, architecture_of
from turnout.models.gguf.header import GGUFHeader, GGUFTensor

__all__ = ["StoredTensor", "stored_tensors"]

WHOLE = ("sinks", "correction_bias")
"""Ends of tensors whose names in a Hugging Face checkpoint say no ``weight`` or ``bias`` behind."""
SKIPPED = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
"""They say how positions are rotated, which the configuration says too."""


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of a file, or an expert's part of one, under the name of a Hugging Face checkpoint."""

    name: str
    stored: GGUFTensor
    heads: int = 0
    """Heads whose rows are in llama.cpp's order; 0: rows are in their own order."""
    more: float = 0.0
    """So much more than Hugging Face's are the file's numbers."""
    values: GGUFTensor | None = None
    """What expands values, [heads, value, rank], where `stored` expands keys alone, [heads, rank, key]."""

    @property
    def shape(self) -> tuple[int, ...]:
        if self.values is None:
            return self.stored.shape
        heads, rank, key = self.stored.shape
        return heads * (key + self.values.shape[1]), rank

    def in_order(self, rows: Tensor) -> Tensor:
        """Returns rows, or what stands for each row, in the order of a Hugging Face checkpoint."""
        if not self.heads:
            return rows
        return rows.view(self.heads, -1, 2, *rows.shape[1:]).transpose(1, 2).flatten(0, 2)


def stored_tensors(header: GGUFHeader) -> list[StoredTensor]:
    """Lists the tensors of a model. Raises ModelError for one that is not known, or an architecture."""
    kind = architecture_of(header)
    named = (_named(header, kind, tensor) for name, tensor in header.tensors.items() if name not in SKIPPED)
    return [part for tensor in named if tensor is not None for part in _parts(header, tensor)]


def _named(header: GGUFHeader, kind: Architecture, tensor: GGUFTensor) -> StoredTensor | None:
    """Names a tensor; None for one that goes with another."""
    whole, _, part = tensor.name.rpartition(".")
    in_layer = re.fullmatch(r"blk\.(\d+)\.(\w+)", whole)
    names = kind.layer if in_layer else TOP
    known = names.get(in_layer[2] if in_layer else whole)
    if known is None:
        raise ModelError(
            f"{header.path} holds the tensor {tensor.name!r}, which is not known of the architecture "
            f"{header.architecture}; take the safetensors checkpoint"
        )
    if not known:
        return None
    known = known if known.endswith(WHOLE) else f"{known}.{part}"
    name = f"model.layers.{in_layer[1]}.{known}" if in_layer else known
    known = known.removesuffix(f".{part}")
    if whole.endswith("attn_k_b"):
        return _joined(header, name, tensor)
    if known.endswith("shared_expert_gate") and len(tensor.shape) == 1:  # a row, without its dimension
        tensor = replace(tensor, shape=(1, *tensor.shape))
    more = kind.norms_plus if known.endswith("norm") else 0.0
    return StoredTensor(name, tensor, _heads(header, known, tensor) if kind.paired else 0, more)


def _parts(header: GGUFHeader, tensor: StoredTensor) -> Iterator[StoredTensor]:
    """Yields each expert's part of a tensor of all experts; another tensor as it is."""
    if "*" not in tensor.name:
        yield tensor
        return
    stored = tensor.stored
    if len(stored.shape) != (2 if tensor.name.endswith("bias") else 3):
        raise ModelError(f"{header.path}: {stored.name!r} has the shape {list(stored.shape)}; 3 are expected")
    experts, *shape = stored.shape
    if experts != (count := header.own.integer("expert_count", experts)):
        raise ModelError(
            f"{header.path}: {stored.name!r} has {experts:,} experts, {header.own.prefix}expert_count is "
            f"{count:,}; convert it again"
        )
    for expert in range(experts):
        start = stored.start + expert * (stored.size // experts)
        part = replace(stored, shape=tuple(shape), start=start)
        yield replace(tensor, name=tensor.name.replace("*", str(expert)), stored=part)


def _joined(header: GGUFHeader, name: str, keys: GGUFTensor) -> StoredTensor:
    beside = keys.name.replace("attn_k_b", "attn_v_b")
    values = header.tensors.get(beside)
    shapes = [each.shape for each in (keys, values) if each is not None and len(each.shape) == 3]
    if values is None or len(shapes) < 2 or shapes[0][:2] != shapes[1][::2]:
        found = " and ".join(
            f"{each.name!r} {list(each.shape)}" for each in (keys, values) if each is not None
        )
        raise ModelError(
            f"{header.path} has {found}; attn_k_b [heads, rank, key] and attn_v_b [heads, value, rank] are "
            "expected, of the same heads and rank; convert it again"
        )
    return StoredTensor(name, keys, values=values)


def _heads(header: GGUFHeader, known: str, tensor: GGUFTensor) -> int:
    if known not in ("self_attn.q_proj", "self_attn.k_proj"):
        return 0
    heads = header.own.integer("attention.head_count")
    heads = heads if known.endswith("q_proj") else header.own.integer("attention.head_count_kv", heads)
    if tensor.shape[0] % (2 * heads):
        raise ModelError(
            f"{header.path}: {tensor.name!r} has {tensor.shape[0]} rows, which are no pairs in each of the "
            f"{heads} heads that the metadata asks for; convert the model again"
        )
    return heads
