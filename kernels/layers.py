"""Computes all layers of a decoder in one native call, on the keys and values of an attention backend."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeGuard

import torch
from torch import Tensor

from turnout.core.errors import CollectiveError
from turnout.core.interfaces.attention import Attend, AttentionCapabilities
from turnout.core.types.layer_attention import LayerAttention
from turnout.kernels.attention.rule import AttentionRule, plain_rule, rule_of
from turnout.kernels.attention.stored import StoredStruct, StoredVectors
from turnout.kernels.compiled import BlockTables, CpuKernels
from turnout.kernels.experts import MixtureStruct, MixtureWeights
from turnout.kernels.integers import IntegerKernels, address
from turnout.kernels.linears import LinearStruct, LinearWeights, linear_struct
from turnout.kernels.threads import kernel_threads

__all__ = [
    "GatedWeights",
    "Heads",
    "InPlace",
    "InPlaceAttention",
    "LayerWeights",
    "NativeLayers",
    "WholeTextAttention",
    "attends_whole_texts",
    "reads_in_place",
]


@dataclass(frozen=True)
class InPlace:
    """Where a step's keys and values are, for kernels that read and write them themselves."""

    pools: Sequence[tuple[StoredVectors, StoredVectors]]
    """Keys and values of each layer; the same object in every step."""
    written: Sequence[Tensor]
    """The slots of the step's tokens, for each KV group: int64 [tokens]."""
    tables: Sequence[BlockTables]
    """Of each KV group; they differ in their slots alone."""
    rules: Sequence[LayerAttention] = ()
    """How each layer attends; empty: all plainly."""
    table_of: Sequence[int] = ()
    """By layer: the number of its KV group; empty: all are in the first."""

    @property
    def computes_layers(self) -> bool:
        """Whether keys and values of every layer are its own, and apart."""
        return not any(rule.values_in_keys or rule.kv_from is not None for rule in self.rules)


class InPlaceAttention(Attend, Protocol):
    """Attention that kernels can do themselves, on its keys and values, without calling it layer by layer."""

    @property
    def in_place(self) -> InPlace:
        """Where keys and values of the step that is bound are."""
        ...


def reads_in_place(attend: Attend) -> TypeGuard[InPlaceAttention]:
    """Says whether `attend` declares that it is an `InPlaceAttention`."""
    capabilities: AttentionCapabilities = getattr(attend, "capabilities", _PLAIN)
    return capabilities.in_place


class WholeTextAttention(Attend, Protocol):
    """Attention among the tokens of each text, which kernels can do themselves on what a layer puts out."""

    @property
    def texts(self) -> BlockTables:
        """The texts of the step that is bound: each is one block, which lies in the batch itself."""
        ...


def attends_whole_texts(attend: Attend) -> TypeGuard[WholeTextAttention]:
    """Says whether `attend` declares that it is a `WholeTextAttention`."""
    capabilities: AttentionCapabilities = getattr(attend, "capabilities", _PLAIN)
    return capabilities.whole_texts


_PLAIN = AttentionCapabilities()


class Heads(NamedTuple):
    queries: int
    keys: int
    dim: int


class GatedWeights(NamedTuple):
    """A gated MLP: gate and up projection side by side, and the one down."""

    gate_up: LinearWeights
    down: LinearWeights


class LayerWeights(NamedTuple):
    """A decoder layer's weights: norms in float32 or bfloat16, linear layers packed for that dtype."""

    norms: Sequence[Tensor]
    """Before attention and before the MLP; then, where heads have them, of queries and of keys."""
    qkv: LinearWeights
    out: LinearWeights
    mlp: GatedWeights | MixtureWeights
    heads: Heads
    eps: float
    """Of the norms."""
    rotation: int = 0
    """Which of a step's rotations turns queries and keys."""
    group: int | None = None
    """The native group of ranks, each of which has a share of heads and of the MLP, and which add up what
    `out` and the MLP's `down` make of them; None: these are whole, as mixtures are. The same in all."""
    sinks: Tensor | None = None
    """A score of each head that attention adds to those of positions: float32 [heads]."""


class NativeLayers:
    """The layers of a decoder over the pools of one attention backend, each with a rule of its own."""

    def __init__(
        self,
        kernels: CpuKernels,
        weights: Sequence[LayerWeights],
        pools: Sequence[tuple[StoredVectors, StoredVectors]],
        rules: Sequence[LayerAttention] = (),
        table_of: Sequence[int] = (),
    ) -> None:
        """rules: by layer; empty: all attend plainly; table_of: as that of `InPlace`."""
        self._kernels, self._weights = kernels, weights
        self.eps = weights[0].eps
        """Of the norms."""
        made = [rule_of(rule) for rule in rules] or [plain_rule(*each.heads) for each in weights]
        mlps = [_mlp(each.mlp, kernels.integers) for each in weights]
        self._mixtures = [mlp.mixture for mlp in mlps]  # the table has their addresses
        layers = zip(weights, mlps, pools, made, table_of or (0,) * len(weights), strict=True)
        self._table = (_Layer * len(weights))(*(_layer(*layer, kernels.integers) for layer in layers))
        self._wide = max(*(each.qkv.outputs for each in weights), *(mlp.wide for mlp in mlps))
        self._narrow = max(*(each.out.inputs for each in weights), *(mlp.narrow for mlp in mlps))

    def __call__(
        self,
        hidden: Tensor,
        rotations: Sequence[tuple[Tensor, Tensor]],
        place: InPlace,
        picked: Tensor | None = None,
        last_norm: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Returns `hidden` after the last layer, of the picked rows, and what is still to be added to it.

        hidden: [tokens, size], which is added to in place; rotations: cosine and sine, [tokens, 1, head_dim]
        each, in the norms' dtype. picked: int64 [rows], ascending: the rows that go beyond the last
        attention; None: all. last_norm: weight of a norm with the layers' epsilon; with it, the second is
        added, and what comes second is the norm of the sum.
        """
        weights, tables = self._weights[0], place.tables[0]
        tokens, size = hidden.shape
        rows = tokens if picked is None else len(picked)
        delta, normed = torch.empty_like(hidden), torch.empty_like(hidden)
        wide = hidden.new_empty(tokens, self._wide)
        narrow = hidden.new_empty(tokens, self._narrow)
        turns = (_POINTER * (2 * len(rotations)))(*(each.data_ptr() for pair in rotations for each in pair))
        groups = (_Group * len(place.tables))(
            *(
                _Group(written.data_ptr(), each.slots.data_ptr(), each.slots.shape[1])
                for written, each in zip(place.written, place.tables, strict=True)
            )
        )
        step = _Step(
            *(tokens, size),
            *(ctypes.addressof(turns), ctypes.addressof(groups)),
            *(each.data_ptr() for each in (tables.rows, tables.lengths, tables.starts)),
            len(tables.rows),
            tables.block_size,
            hidden.dtype == torch.bfloat16,
            kernel_threads(),
            weights.eps,
            *(each.data_ptr() for each in (hidden, delta, normed, wide, narrow)),
            *(address(picked), rows),
            weights.group,
            address(last_norm),
        )
        if not self._kernels.layers(self._table, step):
            raise CollectiveError("another rank of the engine is gone")
        second = delta if last_norm is None else normed
        return (hidden, second) if picked is None else (hidden[:rows], second[:rows])


# ------------------------------------------------------------------ the structures of native/layers.cpp

_POINTER, _LONG, _DOUBLE = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double


class _Layer(ctypes.Structure):
    _fields_ = (
        *((name, _POINTER) for name in ("input_norm", "middle_norm", "q_norm", "k_norm")),
        *((name, LinearStruct) for name in ("qkv", "out", "gate_up", "down")),
        ("mixture", ctypes.POINTER(MixtureStruct)),
        ("sinks", _POINTER),
        *((name, StoredStruct) for name in ("keys", "values")),
        ("rule", AttentionRule),
        ("rotation", _LONG),
        ("group", _LONG),
    )


class _Group(ctypes.Structure):
    _fields_ = (("written", _POINTER), ("tables", _POINTER), ("most", _LONG))


class _Step(ctypes.Structure):
    _fields_ = (
        *((name, _LONG) for name in ("tokens", "size")),
        *((name, _POINTER) for name in ("rotations", "groups", "rows", "lengths", "starts")),
        *((name, _LONG) for name in ("chunks", "block_size", "half", "threads")),
        ("eps", _DOUBLE),
        *((name, _POINTER) for name in ("hidden", "delta", "normed", "wide", "narrow")),
        ("picked", _POINTER),
        ("count", _LONG),
        ("group", _POINTER),
        ("last_norm", _POINTER),
    )


class _MLP(NamedTuple):
    """What a layer has behind its second norm: two linear layers, or a mixture and zeros in their place."""

    gate_up: LinearStruct
    down: LinearStruct
    mixture: MixtureStruct | None
    wide: int
    """Numbers of a row that it has in `_Step.wide`,"""
    narrow: int
    """and in `_Step.narrow`."""


def _mlp(weights: GatedWeights | MixtureWeights, integers: IntegerKernels) -> _MLP:
    if isinstance(weights, GatedWeights):
        gate_up, down = (linear_struct(each, integers) for each in weights)
        return _MLP(gate_up, down, None, weights.gate_up.outputs, weights.down.inputs)
    router = linear_struct(weights.router, integers)
    mixture = weights.experts.mixture(router, weights.top, weights.normalized)
    return _MLP(LinearStruct(), LinearStruct(), mixture, weights.router.outputs, 0)


def _layer(
    weights: LayerWeights,
    mlp: _MLP,
    pool: tuple[StoredVectors, StoredVectors],
    rule: AttentionRule,
    group: int,
    integers: IntegerKernels,
) -> _Layer:
    keys, values = pool
    norms = [norm.data_ptr() for norm in weights.norms]
    return _Layer(
        *norms,
        *[None] * (4 - len(norms)),
        *(linear_struct(each, integers) for each in (weights.qkv, weights.out)),
        *(mlp.gate_up, mlp.down, None if mlp.mixture is None else ctypes.pointer(mlp.mixture)),
        *(address(weights.sinks), keys.struct, values.struct, rule, weights.rotation, group),
    )
