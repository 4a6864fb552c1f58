"""All layers of a decoder in one native call, and what an attention backend gives for it."""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from turnout.kernels.compiled import BlockTables, Kernels, Packed

__all__ = ["Heads", "InPlace", "LayerWeights", "Layers", "LinearWeights", "ReadInPlace"]


@dataclass(frozen=True)
class InPlace:
    """Where the step's keys and values are, for kernels that read and write them themselves."""

    pools: Sequence[tuple[Tensor, Tensor]]
    """Of each layer keys and values, [slots, kv_heads, head_dim]; the same object in every step."""
    written: Tensor
    """The slots of the step's tokens: int64 [tokens]."""
    tables: BlockTables


class ReadInPlace(ABC):
    """Attention that kernels can do without asking it layer by layer."""

    @property
    @abstractmethod
    def in_place(self) -> InPlace | None:
        """Of the step that is bound; None: call it."""


class Heads(NamedTuple):
    queries: int
    keys: int
    dim: int


class LinearWeights(NamedTuple):
    packed: Packed
    bias: Tensor | None


class LayerWeights(NamedTuple):
    """Of a decoder's layer: float32, linear layers packed."""

    input_norm: Tensor
    middle_norm: Tensor
    qkv: LinearWeights
    out: LinearWeights
    gate_up: LinearWeights
    down: LinearWeights
    heads: Heads
    eps: float
    """Of the norms."""


class Layers:
    """The layers of a decoder, which are alike, over the pools of one attention backend."""

    def __init__(
        self,
        kernels: Kernels,
        weights: Sequence[LayerWeights],
        pools: Sequence[tuple[Tensor, Tensor]],
    ) -> None:
        self.pools = pools
        self._kernels, self._weights = kernels, weights
        self._table = (_Layer * len(weights))(*map(_layer, weights, pools))

    def __call__(self, hidden: Tensor, cosine: Tensor, sine: Tensor, place: InPlace) -> Tensor:
        """hidden: float32 [tokens, size], added to in place; cosine, sine: [tokens, 1, head_dim].

        Returns what is still to be added to `hidden`.
        """
        weights, tables = self._weights[0], place.tables
        heads = weights.heads
        tokens, size = hidden.shape
        delta, normed = torch.empty_like(hidden), torch.empty_like(hidden)
        wide = hidden.new_empty(tokens, max(weights.qkv.packed.outputs, weights.gate_up.packed.outputs))
        narrow = hidden.new_empty(tokens, max(weights.out.packed.inputs, weights.down.packed.inputs))
        step = _Step(
            *(tokens, size, heads.queries, heads.keys, heads.dim),
            *(cosine.data_ptr(), sine.data_ptr(), place.written.data_ptr()),
            *(each.data_ptr() for each in (tables.rows, tables.lengths, tables.starts, tables.slots)),
            *tables.slots.shape,
            tables.block_size,
            place.pools[0][0].dtype == torch.bfloat16,
            torch.get_num_threads(),
            *(weights.eps, heads.dim**-0.5),
            *(each.data_ptr() for each in (hidden, delta, normed, wide, narrow)),
        )
        self._kernels.layers(self._table, step)
        return delta


# ------------------------------------------------------------------ as native/layers.cpp reads it

_POINTER, _LONG, _DOUBLE = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double


class _Linear(ctypes.Structure):
    _fields_ = (
        *((name, _POINTER) for name in ("numbers", "bias")),
        *((name, _LONG) for name in ("inputs", "outputs", "half")),
    )


class _Layer(ctypes.Structure):
    _fields_ = (
        *((name, _POINTER) for name in ("input_norm", "middle_norm")),
        *((name, _Linear) for name in ("qkv", "out", "gate_up", "down")),
        *((name, _POINTER) for name in ("keys", "values")),
    )


class _Step(ctypes.Structure):
    _fields_ = (
        *((name, _LONG) for name in ("tokens", "size", "heads", "kv_heads", "dim")),
        *((name, _POINTER) for name in ("cosine", "sine", "written", "rows", "lengths", "starts", "tables")),
        *((name, _LONG) for name in ("chunks", "most", "block_size", "pool_half", "threads")),
        *((name, _DOUBLE) for name in ("eps", "scale")),
        *((name, _POINTER) for name in ("hidden", "delta", "normed", "wide", "narrow")),
    )


def _layer(weights: LayerWeights, pool: tuple[Tensor, Tensor]) -> _Layer:
    keys, values = pool
    linears = (_linear(each) for each in (weights.qkv, weights.out, weights.gate_up, weights.down))
    norms = (weights.input_norm.data_ptr(), weights.middle_norm.data_ptr())
    return _Layer(*norms, *linears, keys.data_ptr(), values.data_ptr())


def _linear(weights: LinearWeights) -> _Linear:
    packed, bias = weights
    return _Linear(
        packed.numbers.data_ptr(),
        None if bias is None else bias.data_ptr(),
        packed.inputs,
        packed.outputs,
        packed.numbers.dtype == torch.bfloat16,
    )
