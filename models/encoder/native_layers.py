"""An encoder's weights as native/encoder_layers.cpp reads them, and a step of theirs in one call."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from turnout.kernels import CpuKernels
from turnout.kernels.attention.rule import AttentionRule
from turnout.kernels.compiled import BlockTables
from turnout.kernels.integers import address
from turnout.kernels.linears import LinearStruct, LinearWeights, linear_struct
from turnout.kernels.threads import kernel_threads

__all__ = [
    "GATED",
    "GELU",
    "TANH_GELU",
    "EmbeddingTables",
    "EncoderLayerWeights",
    "NativeEncoderLayers",
    "NormWeights",
    "StepInputs",
]

GELU, TANH_GELU, GATED = range(3)
"""What is inside an MLP; of `GATED`, the first linear layer has gates and what they let through joined."""


class NormWeights(NamedTuple):
    """Of a layer norm, in the dtype of activations."""

    weight: Tensor
    bias: Tensor | None


class EncoderLayerWeights(NamedTuple):
    attention_norm: NormWeights | None
    """None: attention reads what comes in as it is (ModernBERT's first layer)."""
    mlp_norm: NormWeights
    qkv: LinearWeights
    out: LinearWeights
    up: LinearWeights
    down: LinearWeights
    activation: int
    post: bool
    """Whether norms are behind the residuals, or before attention and MLP."""
    rotation: int | None
    """Which of a step's rotations turns queries and keys."""


class EmbeddingTables(NamedTuple):
    """Tables, [rows, hidden_size], in float32 or bfloat16, whose rows are added and then normed."""

    words: Tensor
    types: Tensor | None
    positions: Tensor | None
    norm: NormWeights
    first_position: int
    """The row of the first position."""


class StepInputs(NamedTuple):
    """A step's tokens; all are int64 on the CPU."""

    tokens: Tensor
    positions: Tensor
    token_types: Tensor | None
    texts: BlockTables
    """Each text is one block, which lies in the batch itself."""
    picked: Tensor | None
    """Ascending: the rows that come out; None: all."""


class NativeEncoderLayers:
    """All of an encoder, its embeddings and its last norm included."""

    def __init__(
        self,
        kernels: CpuKernels,
        embeddings: EmbeddingTables,
        layers: Sequence[EncoderLayerWeights],
        rules: Sequence[AttentionRule],
        last: NormWeights | None,
        dtype: torch.dtype,
        eps: float,
    ) -> None:
        """dtype: of activations; eps: of the norms. Tensors must stay where they are."""
        self._kernels, self._dtype, self._eps = kernels, dtype, eps
        self._held = embeddings, layers, last
        self._embeddings = _embeddings(embeddings)
        self._last = _norm(last)
        made = (_layer(*each, kernels) for each in zip(layers, rules, strict=True))
        self._table = (_Layer * len(layers))(*made)
        self._size = embeddings.words.shape[1]
        self._wide = max(max(each.qkv.outputs, each.up.outputs) for each in layers)
        self._narrow = max(max(each.out.inputs, each.down.inputs) for each in layers)

    def __call__(self, inputs: StepInputs, rotations: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        """Returns hidden states [rows, hidden_size].

        rotations: cosine and sine, [tokens, 1, head_dim] each, in the activations' dtype.
        """
        tokens, size, texts = len(inputs.tokens), self._size, inputs.texts
        rows = tokens if inputs.picked is None else len(inputs.picked)
        widths = (size, size, size, self._wide, self._narrow)
        room = [torch.empty(tokens, width, dtype=self._dtype) for width in widths]
        turns = (_POINTER * (2 * len(rotations)))(*(each.data_ptr() for pair in rotations for each in pair))
        step = _Step(
            *(tokens, size),
            *(address(each) for each in (inputs.tokens, inputs.positions, inputs.token_types)),
            ctypes.addressof(turns),
            *(each.data_ptr() for each in (texts.rows, texts.lengths, texts.starts)),
            *(len(texts.rows), texts.block_size),
            *(self._dtype == torch.bfloat16, kernel_threads(), self._eps),
            *(each.data_ptr() for each in room),
            *(address(inputs.picked), rows),
        )
        self._kernels.encode(self._embeddings, self._table, self._last, step)
        return room[0][:rows]


# ------------------------------------------------------------------ the structures of encoder_layers.cpp

_POINTER, _LONG, _DOUBLE = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double


class _Norm(ctypes.Structure):
    _fields_ = (("weight", _POINTER), ("bias", _POINTER))


class _Layer(ctypes.Structure):
    _fields_ = (
        *((name, _Norm) for name in ("attention_norm", "mlp_norm")),
        *((name, LinearStruct) for name in ("qkv", "out", "up", "down")),
        ("rule", AttentionRule),
        *((name, _LONG) for name in ("rotation", "activation", "post")),
    )


class _Table(ctypes.Structure):
    _fields_ = (("rows", _POINTER), ("half", _LONG))


class _Embeddings(ctypes.Structure):
    _fields_ = (
        *((name, _Table) for name in ("words", "types", "positions")),
        ("norm", _Norm),
        ("first_position", _LONG),
    )


class _Step(ctypes.Structure):
    _fields_ = (
        *((name, _LONG) for name in ("tokens", "size")),
        *((name, _POINTER) for name in ("ids", "positions", "types", "rotations")),
        *((name, _POINTER) for name in ("rows", "lengths", "starts")),
        *((name, _LONG) for name in ("texts", "longest", "half", "threads")),
        ("eps", _DOUBLE),
        *((name, _POINTER) for name in ("hidden", "delta", "normed", "wide", "narrow")),
        ("picked", _POINTER),
        ("count", _LONG),
    )


def _norm(norm: NormWeights | None) -> _Norm:
    return _Norm() if norm is None else _Norm(norm.weight.data_ptr(), address(norm.bias))


def _rows(table: Tensor | None) -> _Table:
    return _Table() if table is None else _Table(table.data_ptr(), table.dtype == torch.bfloat16)


def _embeddings(tables: EmbeddingTables) -> _Embeddings:
    rows = (_rows(each) for each in (tables.words, tables.types, tables.positions))
    return _Embeddings(*rows, _norm(tables.norm), tables.first_position)


def _layer(weights: EncoderLayerWeights, rule: AttentionRule, kernels: CpuKernels) -> _Layer:
    linears = (weights.qkv, weights.out, weights.up, weights.down)
    return _Layer(
        *(_norm(each) for each in (weights.attention_norm, weights.mlp_norm)),
        *(linear_struct(each, kernels.integers) for each in linears),
        rule,
        -1 if weights.rotation is None else weights.rotation,
        *(weights.activation, weights.post),
    )
