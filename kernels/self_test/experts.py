"""Errors of a mixture of experts: of its router, and of the experts."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from turnout.kernels.compiled import CpuKernels
from turnout.kernels.experts import ExpertWeights, NativeExperts
from turnout.kernels.linears import FloatWeights
from turnout.kernels.self_test.errors import error_of, normal

__all__ = ["experts", "router"]

EXPERTS, TOP, SIZE, INNER = 6, 2, 96, 72


def router(kernels: CpuKernels, dtype: torch.dtype, rows: int) -> float:
    """Likelihoods that lie where the experts are: another expert is as wrong as another likelihood."""
    scores = normal(rows, EXPERTS).to(dtype)
    chosen, weights = kernels.route(scores, TOP, normalized=True)
    best = scores.double().topk(TOP)
    zeros = torch.zeros(rows, EXPERTS, dtype=torch.float64)
    expected = zeros.scatter(1, best.indices, best.values.softmax(-1))
    return error_of(zeros.scatter(1, chosen, weights.double()), expected)


def experts(kernels: CpuKernels, dtype: torch.dtype, rows: int) -> float:
    x = normal(rows, SIZE).to(dtype)
    weights, chosen = normal(rows, EXPERTS, seed=1).softmax(-1).topk(TOP)
    into = [(normal(2 * INNER, SIZE, seed=2 + e) / SIZE**0.5).to(dtype) for e in range(EXPERTS)]
    back = [(normal(SIZE, INNER, seed=20 + e) / INNER**0.5).to(dtype) for e in range(EXPERTS)]
    expected = torch.zeros(rows, SIZE, dtype=torch.float64)
    for expert, (gate_up, down) in enumerate(zip(into, back, strict=True)):
        opened, up = F.linear(x.double(), gate_up.double()).chunk(2, dim=-1)
        share = (weights * (chosen == expert)).sum(-1, keepdim=True).double()
        expected += share * F.linear(F.silu(opened) * up, down.double())
    packed = [
        ExpertWeights(*(FloatWeights(kernels.pack([each]), None) for each in pair))
        for pair in zip(into, back, strict=True)
    ]
    return error_of(NativeExperts(kernels, packed)(x, chosen, weights), expected)
