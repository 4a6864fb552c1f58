"""Errors of what a layer of floats computes besides attention."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from turnout.kernels.compiled import CpuKernels
from turnout.kernels.self_test.errors import error_of, normal

__all__ = ["gate", "gelu", "layer_norm", "linear", "norm", "rotation"]

INPUTS, OUTPUTS = 300, 130


def linear(kernels: CpuKernels, dtype: torch.dtype, rows: int) -> float:
    weight, x, bias = (normal(*shape).to(dtype) for shape in ((OUTPUTS, INPUTS), (rows, INPUTS), (OUTPUTS,)))
    expected = F.linear(x.double(), weight.double(), bias.double())
    return error_of(kernels.linear(x, kernels.pack([weight]), bias), expected)


def norm(kernels: CpuKernels, dtype: torch.dtype, rows: int) -> float:
    x, delta, weight = (normal(n, INPUTS, seed=n).to(dtype) for n in (rows, rows, 1))
    expected = F.rms_norm((x + delta).double(), (INPUTS,), weight[0].double(), 1e-6)
    return error_of(kernels.norm(x.clone(), delta, weight[0], 1e-6), expected)


def gate(kernels: CpuKernels, dtype: torch.dtype, rows: int) -> float:
    both = normal(rows, 2 * OUTPUTS).to(dtype)
    return error_of(kernels.gate(both), F.silu(both[:, :OUTPUTS].double()) * both[:, OUTPUTS:].double())


def layer_norm(kernels: CpuKernels, dtype: torch.dtype, rows: int) -> float:
    x, delta, weights = (normal(n, INPUTS, seed=n).to(dtype) for n in (rows, rows, 2))
    weight, bias = weights
    expected = F.layer_norm((x + delta).double(), (INPUTS,), weight.double(), bias.double(), 1e-12)
    return error_of(kernels.layer_norm(x, delta, weight, bias, 1e-12, x), expected)


def gelu(kernels: CpuKernels, dtype: torch.dtype, rows: int) -> float:
    """By the error function, by tanh, and of a gate."""
    x, both = 3 * normal(rows, OUTPUTS).to(dtype), 3 * normal(rows, 2 * OUTPUTS).to(dtype)
    gate = F.gelu(both[:, :OUTPUTS].double()) * both[:, OUTPUTS:].double()
    return max(
        error_of(kernels.gelu(x.clone(), by_tanh=False), F.gelu(x.double())),
        error_of(kernels.gelu(x.clone(), by_tanh=True), F.gelu(x.double(), approximate="tanh")),
        error_of(kernels.gelu_gate(both), gate),
    )


def rotation(kernels: CpuKernels, dtype: torch.dtype, rows: int) -> float:
    angles = normal(rows, 1, 32)
    cosine, sine = (torch.cat((part, part), dim=-1).to(dtype) for part in (angles.cos(), angles.sin()))
    x = normal(rows, 3, 64).to(dtype)
    first, second = x.double().chunk(2, dim=-1)
    expected = x.double() * cosine.double() + torch.cat((-second, first), dim=-1) * sine.double()
    kernels.rotate(x, cosine, sine)
    return error_of(x, expected)
