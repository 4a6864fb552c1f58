"""Compares what the native kernels compute on this machine with the same sums in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from turnout.core.types.layer_attention import LayerAttention
from turnout.kernels.attention.dense import hidden_from
from turnout.kernels.attention.rule import rule_of
from turnout.kernels.attention.stored import StoredVectors
from turnout.kernels.compiled import BlockTables, CpuKernels
from turnout.kernels.integers import Precision

__all__ = ["Check", "self_test"]

ROWS = (1, 3, 20, 40)
INPUTS, OUTPUTS = 300, 130
START, BLOCK, HEADS, KV_HEADS, DIM = 70, 16, 6, 2, 64
"""Of a chunk of tokens: how many are before it, and the shape of its attention."""
FLOATS = {"float32": (torch.float32, 1e-5), "bfloat16": (torch.bfloat16, 2**-7)}
"""The largest error, as a part of the largest number of the result."""


ErrorOf = Callable[[CpuKernels, torch.dtype, int], float]


class Check(NamedTuple):
    """A kernel's largest error, as a part of the largest number of its result."""

    kernel: str
    error: float
    bound: float

    @property
    def passed(self) -> bool:
        return self.error <= self.bound


def self_test(kernels: CpuKernels) -> Iterator[Check]:
    """Yields a check of each kernel."""
    for name, (dtype, bound) in FLOATS.items():
        for kernel, error in (
            ("linear", _linear),
            ("norm", _norm),
            ("gate", _gate),
            ("layer norm", _layer_norm),
            ("GELU", _gelu),
            ("rotation", _rotation),
            ("attention", _attention),
            ("attention of encoders", _encoder_attention),
            ("attention over int8", _attention_over_int8),
        ):
            yield Check(f"{kernel}, {name}", _worst(error, kernels, dtype), bound)
    for precision in Precision:
        yield Check(f"linear, {precision.name}", _integers(kernels, precision), 2**-6)


def _worst(error: ErrorOf, kernels: CpuKernels, dtype: torch.dtype) -> float:
    return max(error(kernels, dtype, rows) for rows in ROWS)


def _normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _error(found: Tensor, expected: Tensor) -> float:
    """A result that is not a number is infinitely wrong."""
    error = (found.double() - expected).abs().max() / expected.abs().max()
    return float(error.nan_to_num(nan=torch.inf))


def _linear(kernels: CpuKernels, dtype: torch.dtype, rows: int) -> float:
    weight, x, bias = (_normal(*shape).to(dtype) for shape in ((OUTPUTS, INPUTS), (rows, INPUTS), (OUTPUTS,)))
    expected = F.linear(x.double(), weight.double(), bias.double())
    return _error(kernels.linear(x, kernels.pack([weight]), bias), expected)


def _integers(kernels: CpuKernels, precision: Precision) -> float:
    """Weights are codes already; only inputs are rounded. Few rows may go another way than many."""
    integers, inputs = kernels.integers, 512
    low, high = (0, 15) if precision is Precision.W4A16 else (-127, 127)
    codes = torch.randint(low, high + 1, (OUTPUTS, inputs), generator=torch.Generator().manual_seed(1))
    dtype = torch.uint8 if precision is Precision.W4A16 else torch.int8
    scale = (_normal(OUTPUTS, 1).abs() + 0.1).bfloat16().float()
    center, offset = (8, torch.zeros_like(scale)) if precision is Precision.W4A16 else (0, None)
    packed = integers.pack(precision, codes.to(dtype), scale, offset, None)
    weight, x = (codes.double() - center) * scale.double(), _normal(20, inputs, seed=2)
    found = torch.cat([integers.linear(x, packed), integers.linear(x[:3], packed)])
    return _error(found, F.linear(x.double(), weight)[[*range(20), *range(3)]])


def _norm(kernels: CpuKernels, dtype: torch.dtype, rows: int) -> float:
    x, delta, weight = (_normal(n, INPUTS, seed=n).to(dtype) for n in (rows, rows, 1))
    expected = F.rms_norm((x + delta).double(), (INPUTS,), weight[0].double(), 1e-6)
    return _error(kernels.norm(x.clone(), delta, weight[0], 1e-6), expected)


def _gate(kernels: CpuKernels, dtype: torch.dtype, rows: int) -> float:
    both = _normal(rows, 2 * OUTPUTS).to(dtype)
    return _error(kernels.gate(both), F.silu(both[:, :OUTPUTS].double()) * both[:, OUTPUTS:].double())


def _layer_norm(kernels: CpuKernels, dtype: torch.dtype, rows: int) -> float:
    x, delta, weights = (_normal(n, INPUTS, seed=n).to(dtype) for n in (rows, rows, 2))
    weight, bias = weights
    expected = F.layer_norm((x + delta).double(), (INPUTS,), weight.double(), bias.double(), 1e-12)
    return _error(kernels.layer_norm(x, delta, weight, bias, 1e-12, x), expected)


def _gelu(kernels: CpuKernels, dtype: torch.dtype, rows: int) -> float:
    """By the error function, by tanh, and of a gate."""
    x, both = 3 * _normal(rows, OUTPUTS).to(dtype), 3 * _normal(rows, 2 * OUTPUTS).to(dtype)
    gate = F.gelu(both[:, :OUTPUTS].double()) * both[:, OUTPUTS:].double()
    return max(
        _error(kernels.gelu(x.clone(), by_tanh=False), F.gelu(x.double())),
        _error(kernels.gelu(x.clone(), by_tanh=True), F.gelu(x.double(), approximate="tanh")),
        _error(kernels.gelu_gate(both), gate),
    )


def _rotation(kernels: CpuKernels, dtype: torch.dtype, rows: int) -> float:
    angles = _normal(rows, 1, 32)
    cosine, sine = (torch.cat((part, part), dim=-1).to(dtype) for part in (angles.cos(), angles.sin()))
    x = _normal(rows, 3, 64).to(dtype)
    first, second = x.double().chunk(2, dim=-1)
    expected = x.double() * cosine.double() + torch.cat((-second, first), dim=-1) * sine.double()
    kernels.rotate(x, cosine, sine)
    return _error(x, expected)


def _attention(kernels: CpuKernels, dtype: torch.dtype, rows: int) -> float:
    keys, values = (_normal(*_pool(rows), seed=seed).to(dtype) for seed in (1, 2))
    return _attention_error(kernels, dtype, rows, (keys, values), (keys, values))


def _attention_over_int8(kernels: CpuKernels, dtype: torch.dtype, rows: int) -> float:
    stored, meant = [], []
    for seed in (1, 2):
        codes = (40 * _normal(*_pool(rows), seed=seed)).clamp(-127, 127).to(torch.int8)
        scales = (_normal(*codes.shape[:2], seed=3).abs() / 40).to(torch.bfloat16)
        stored.append(StoredVectors(codes, scales))
        meant.append(codes * scales.double()[..., None])
    return _attention_error(kernels, dtype, rows, stored, meant)


def _pool(rows: int) -> tuple[int, int, int]:
    return -(-(START + rows) // BLOCK) * BLOCK, KV_HEADS, DIM


def _attention_error(
    kernels: CpuKernels,
    dtype: torch.dtype,
    rows: int,
    stored: Sequence[Tensor | StoredVectors],
    meant: Sequence[Tensor],
) -> float:
    """The error of a chunk of `rows` tokens, over blocks that lie in reverse. meant: what is stored."""
    slots = torch.arange(_pool(rows)[0] // BLOCK - 1, -1, -1)[None] * BLOCK
    q = _normal(rows, HEADS, DIM).to(dtype)
    tables = BlockTables(BLOCK, torch.tensor([0]), torch.tensor([rows]), torch.tensor([START]), slots)
    where = (slots[0][:, None] + torch.arange(BLOCK)).reshape(-1)[: START + rows]
    k, v = (part[where].double().transpose(0, 1) for part in meant)
    mask = torch.ones(rows, START + rows, dtype=torch.bool).tril(START)
    expected = F.scaled_dot_product_attention(
        q.double().transpose(0, 1), k, v, attn_mask=mask, enable_gqa=True
    )
    return _error(kernels.attend(q, stored[0], stored[1], tables), expected.transpose(0, 1))


def _encoder_attention(kernels: CpuKernels, dtype: torch.dtype, rows: int) -> float:
    """A text of twice as many tokens as `rows`, seen in both directions, whole and in a window."""
    tokens, heads, dim = 2 * rows, 3, 32
    q, k, v = _normal(tokens, 3 * heads, dim).to(dtype).chunk(3, dim=1)
    whole = torch.tensor([0]), torch.tensor([tokens]), torch.tensor([0]), torch.zeros(1, 1, dtype=torch.int64)
    places, worst = torch.arange(tokens), 0.0
    for window in (None, 5):
        rule = LayerAttention(heads, heads, dim, dim, window=window, causal=False)
        seen = ~hidden_from(places[:, None], places, window, causal=False)
        queries, keys, values = (each.double().transpose(0, 1) for each in (q, k, v))
        expected = F.scaled_dot_product_attention(queries, keys, values, seen).transpose(0, 1)
        found = kernels.attend(q, k, v, BlockTables(tokens, *whole), rule_of(rule))
        worst = max(worst, _error(found, expected))
    return worst
