"""Errors of attention: over blocks of a KV pool, and of encoders."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from turnout.core.types.layer_attention import LayerAttention
from turnout.kernels.attention.dense import hidden_from
from turnout.kernels.attention.rule import rule_of
from turnout.kernels.attention.stored import StoredVectors
from turnout.kernels.compiled import BlockTables, CpuKernels
from turnout.kernels.self_test.errors import error_of, normal

__all__ = ["attention", "attention_over_int8", "encoder_attention"]

START, BLOCK, HEADS, KV_HEADS, DIM = 70, 16, 6, 2, 64
"""Of a chunk of tokens: how many are before it, and the shape of its attention."""


def attention(kernels: CpuKernels, dtype: torch.dtype, rows: int) -> float:
    keys, values = (normal(*_pool(rows), seed=seed).to(dtype) for seed in (1, 2))
    return _attention_error(kernels, dtype, rows, (keys, values), (keys, values))


def attention_over_int8(kernels: CpuKernels, dtype: torch.dtype, rows: int) -> float:
    stored, meant = [], []
    for seed in (1, 2):
        codes = (40 * normal(*_pool(rows), seed=seed)).clamp(-127, 127).to(torch.int8)
        scales = (normal(*codes.shape[:2], seed=3).abs() / 40).to(torch.bfloat16)
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
    q = normal(rows, HEADS, DIM).to(dtype)
    tables = BlockTables(BLOCK, torch.tensor([0]), torch.tensor([rows]), torch.tensor([START]), slots)
    where = (slots[0][:, None] + torch.arange(BLOCK)).reshape(-1)[: START + rows]
    k, v = (part[where].double().transpose(0, 1) for part in meant)
    mask = torch.ones(rows, START + rows, dtype=torch.bool).tril(START)
    expected = F.scaled_dot_product_attention(
        q.double().transpose(0, 1), k, v, attn_mask=mask, enable_gqa=True
    )
    return error_of(kernels.attend(q, stored[0], stored[1], tables), expected.transpose(0, 1))


def encoder_attention(kernels: CpuKernels, dtype: torch.dtype, rows: int) -> float:
    """A text of twice as many tokens as `rows`, seen in both directions, whole and in a window."""
    tokens, heads, dim = 2 * rows, 3, 32
    q, k, v = normal(tokens, 3 * heads, dim).to(dtype).chunk(3, dim=1)
    whole = torch.tensor([0]), torch.tensor([tokens]), torch.tensor([0]), torch.zeros(1, 1, dtype=torch.int64)
    places, worst = torch.arange(tokens), 0.0
    for window in (None, 5):
        rule = LayerAttention(heads, heads, dim, dim, window=window, causal=False)
        seen = ~hidden_from(places[:, None], places, window, causal=False)
        queries, keys, values = (each.double().transpose(0, 1) for each in (q, k, v))
        expected = F.scaled_dot_product_attention(queries, keys, values, seen).transpose(0, 1)
        found = kernels.attend(q, k, v, BlockTables(tokens, *whole), rule_of(rule))
        worst = max(worst, error_of(found, expected))
    return worst
