"""Every kernel at the sizes of a model: what it computes, what it should, and what it moves or multiplies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from turnout.kernels.gpu.layers import GpuKernels
from turnout.models.decoder.rope import Rotation
from turnout.plugins.kv_backends.paged.device.kernel_attention import lanes_of
from turnout.plugins.kv_backends.paged.device.kernels.rotated_write import rotated_write
from turnout.plugins.kv_backends.storage.dtypes import KVDtype
from turnout.plugins.kv_backends.storage.pool import make_storage
from turnout.plugins.kv_backends.storage.tensors import PoolShape
from turnout.plugins.quantization.gpu.factory import GpuLayerFactory
from turnout.plugins.quantization.gpu.layers import CodesLinear
from turnout.plugins.quantization.schemes import encoding

__all__ = ["KernelCase", "Sizes", "kernel_cases"]

DTYPE = torch.bfloat16


@dataclass(frozen=True)
class Sizes:
    """Of a model and of a step; by default those of Llama 3 8B."""

    hidden: int = 4096
    intermediate: int = 14336
    heads: int = 32
    kv_heads: int = 8
    dim: int = 128
    tokens: int = 4096
    few: tuple[int, ...] = (1, 64)
    """Rows of products that are bound by reading weights."""


@dataclass(frozen=True)
class KernelCase:
    name: str
    shape: str
    work: Callable[[], object]
    """For timing; may change what it reads."""
    error: Callable[[], float]
    """Of one run, relative to the largest number that is expected; before `work` has run."""
    tolerance: float
    bytes: int = 0
    flops: int = 0


def kernel_cases(sizes: Sizes, device: torch.device) -> Iterator[KernelCase]:
    yield from _layers(sizes, device)
    for stored in ("auto", "int8", "fp8"):
        yield _write(sizes, stored, device)
    for rows in (*sizes.few, sizes.tokens):
        yield from _products(sizes, rows, device)


def _layers(sizes: Sizes, device: torch.device) -> Iterator[KernelCase]:
    kernels, tokens = GpuKernels(), sizes.tokens
    x, delta = _draw(device, 2, tokens, sizes.hidden)
    weight, both = _draw(device, sizes.hidden), _draw(device, tokens, 2 * sizes.intermediate)

    def norm_error() -> float:
        total = (x + delta).float()
        expected = total * torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + 1e-6) * weight.float()
        return _error(kernels.norm(x.clone(), delta, weight, 1e-6), expected)

    def gate_error() -> float:
        gate, up = both.float().chunk(2, dim=-1)
        return _error(kernels.gate(both), F.silu(gate) * up)

    def norm() -> Tensor:
        return kernels.norm(x, delta, weight, 1e-6)

    yield KernelCase("norm", f"{tokens} x {sizes.hidden}", norm, norm_error, 2**-6, bytes=4 * x.nbytes)
    size = f"{tokens} x {sizes.intermediate}"
    yield KernelCase("gate", size, lambda: kernels.gate(both), gate_error, 2**-6, bytes=both.nbytes * 3 // 2)


def _write(sizes: Sizes, stored: KVDtype, device: torch.device) -> KernelCase:
    tokens, dim = sizes.tokens, sizes.dim
    storage = make_storage(stored, PoolShape(1, tokens, sizes.kv_heads, dim, dim), device, DTYPE)
    q = _draw(device, tokens, sizes.heads, dim)
    k, v = _draw(device, 2, tokens, sizes.kv_heads, dim)
    slots = torch.randperm(tokens, device=device).to(torch.int32)
    angles = torch.randn(tokens, 1, dim // 2, device=device).repeat(1, 1, 2)
    rotation = Rotation(angles.cos().to(DTYPE), angles.sin().to(DTYPE))
    lanes = lanes_of(storage.tensors, 0, stored)

    def error() -> float:
        exact = Rotation(rotation.cos.float(), rotation.sin.float())
        queries, keys = exact.apply(q.float()), exact.apply(k.float())
        turned = q.clone()
        rotated_write(turned, k, v, slots, lanes, rotation)
        found_k, found_v = (found[slots.long()] for found in storage.read(0, slice(0, tokens)))
        return max(_error(turned, queries), _error(found_k, keys), _error(found_v, v.float()))

    moved = 2 * q.nbytes + k.nbytes + v.nbytes + sum(tensor.nbytes for tensor in storage.tensors)
    tolerance = {"auto": 2**-7, "bfloat16": 2**-7, "int8": 2**-6, "fp8": 2**-4}[stored]
    return KernelCase(
        f"write, KV {stored}",
        f"{tokens} tokens",
        lambda: rotated_write(q, k, v, slots, lanes, rotation),
        error,
        tolerance,
        bytes=moved,
    )


def _products(sizes: Sizes, rows: int, device: torch.device) -> Iterator[KernelCase]:
    """Of the gate and up projections, bfloat16's own product first."""
    outputs, inputs = 2 * sizes.intermediate, sizes.hidden
    weight, x = _draw(device, outputs, inputs) / 50, _draw(device, rows, inputs)
    expected = x.float() @ weight.float().t()
    for name, layer, tolerance in _linears(weight, device):
        held = sum(tensor.nbytes for tensor in (*layer.parameters(), *layer.buffers()))
        yield KernelCase(
            f"product, {name}",
            f"{rows} x {inputs} x {outputs}",
            lambda layer=layer: layer(x),
            lambda layer=layer: _error(layer(x), expected),
            tolerance,
            bytes=held if rows <= 64 else 0,
            flops=0 if rows <= 64 else 2 * rows * inputs * outputs,
        )


def _linears(weight: Tensor, device: torch.device) -> Iterator[tuple[str, nn.Module, float]]:
    """With how much is lost by rounding weights, and activations where those are rounded, too."""
    plain = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    plain.weight = nn.Parameter(weight, requires_grad=False)
    yield "bf16", plain, 2**-6
    yield "int8", GpuLayerFactory.int8(*encoding.to_int8(weight), None), 2**-5
    yield "int8wo", GpuLayerFactory.int8_weights(*encoding.to_int8(weight), None), 2**-5
    codes, scale = encoding.to_e4m3(weight)
    yield "fp8wo", GpuLayerFactory.fp8(codes, scale, None, False), 2**-4
    if isinstance(both := GpuLayerFactory.fp8(codes, scale, None, True), CodesLinear):  # where the card can
        yield "fp8", both, 2**-4
    group = min(128, weight.shape[1])
    four = encoding.to_int4(weight, group)
    offset = (8 - four.zero.float()) * four.scale
    yield "int4wo", GpuLayerFactory.int4(four.codes, four.scale, offset, None, None), 2**-2


def _draw(device: torch.device, *shape: int) -> Tensor:
    return torch.randn(shape, device=device, dtype=torch.float32).to(DTYPE)


def _error(found: Tensor, expected: Tensor) -> float:
    return float((found.float() - expected.float()).abs().max() / expected.float().abs().max())
