"""Compile every kernel for a GPU that is not there, as real models would call them; a program of its own.

python tests/gpu/support/compile_kernels.py [--capability 90]

Prints a line for each: what it takes of a multiprocessor, and its loops that copy from the card's memory.
Fails where one does not compile, takes more shared memory than there is, has too few registers, or has
nothing on its way from memory while it computes.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

# Before Triton is imported, which reads it when it defines a kernel.
os.environ.pop("TRITON_INTERPRET", None)
warnings.filterwarnings("ignore", message="TRITON_DEFAULT_FP_FUSION")
sys.path.insert(0, str(Path(__file__).parent))

import torch  # noqa: E402
from pretended_gpu import Compiled, PretendedGpu  # noqa: E402
from ragged_case import Case  # noqa: E402

from turnout.core.types.sampling_params import SamplingParams  # noqa: E402
from turnout.kernels.gpu.experts import ExpertProducts, SortedPairs, add_up  # noqa: E402
from turnout.kernels.gpu.layers import GpuKernels  # noqa: E402
from turnout.kernels.gpu.weights import DeviceWeights  # noqa: E402
from turnout.plugins.kv_backends.paged.device.kernel_attention import lanes_of  # noqa: E402
from turnout.plugins.kv_backends.paged.device.kernels.rotated_write import rotated_write  # noqa: E402
from turnout.plugins.kv_backends.storage.dtypes import KVDtype  # noqa: E402
from turnout.plugins.kv_backends.storage.pool import make_storage  # noqa: E402
from turnout.plugins.kv_backends.storage.tensors import PoolShape  # noqa: E402
from turnout.plugins.quantization.gpu.layers import CodesLinear, WeightOnlyLinear  # noqa: E402
from turnout.plugins.quantization.gpu.products import Weights  # noqa: E402
from turnout.sampling.distributions import truncate_by_kernel  # noqa: E402

CPU, HALF = torch.device("cpu"), torch.bfloat16
MOST_SPILLED = {80: 512, 89: 512, 90: 192}
"""Bytes that a thread may keep in memory for want of registers, by compute capability.

Decoding over an 8-bit pool keeps some: on an H200 that is faster than half as many positions at a time, and
than twice as many warps.
Before Hopper, products take registers for what they multiply: long prompts over an 8-bit pool spill some.
"""
SPANS = [[(40, 1)], [(600, 1)], [(600, 5)], [(0, 300)]]
"""Decoding, in parts, verifying, a prompt."""
MOST_WAITING = 2
"""Long prompts of heads of 256, with and without rules: for two turns of those there is no room in 99 KiB."""


def layers(capability: int) -> None:
    kernels, x = GpuKernels(), torch.zeros(3, 4096, dtype=HALF)
    kernels.norm(x, x, x[0], 1e-6)
    kernels.norm(x, None, x[0], 1e-6)
    kernels.gate(torch.zeros(3, 2 * 14336, dtype=HALF))
    kernels.rotate(x.view(3, 32, 128), x[:, None, :128].contiguous(), x[:, None, :128].contiguous())


def writes(capability: int) -> None:
    q, k = torch.zeros(3, 32, 128, dtype=HALF), torch.zeros(3, 8, 128, dtype=HALF)
    slots, cosine = torch.zeros(3, dtype=torch.int32), torch.zeros(3, 1, 128, dtype=HALF)
    for stored in ("auto", "int8", "fp8"):
        storage = make_storage(stored, PoolShape(1, 16, 8, 128, 128), CPU, HALF)
        rotated_write(q, k, k, slots, lanes_of(storage.tensors, 0, stored), (cosine, cosine))


def attention(capability: int) -> None:
    for span in SPANS:
        Case(32, 8, 128, 16, span, HALF).prepare(CPU)()


def rarer_attention(capability: int) -> None:
    shapes: list[tuple[int, int, int, KVDtype]] = [
        (32, 8, 128, "int8"),
        (32, 8, 128, "fp8"),
        (8, 8, 256, "auto"),
        (7, 1, 64, "auto"),
    ]
    for heads, kv_heads, dim, stored in shapes:
        for span in SPANS:
            Case(heads, kv_heads, dim, 16, span, HALF, stored).prepare(CPU)()
    Case(32, 8, 128, 16, [(600, 1), (600, 1)], HALF, shared={1: 20}, cascade=1).prepare(CPU)()


def attention_by_rules(capability: int) -> None:
    """As Gemma 2 and 3 have it, and gpt-oss."""
    for span in SPANS:
        Case(8, 4, 256, 16, span, HALF, scale=0.0625, window=4096, softcap=50.0).prepare(CPU)()
        Case(64, 8, 64, 16, span, HALF, window=128, sinks=True).prepare(CPU)()


def products(capability: int) -> None:
    outputs, inputs, group = 4096, 4096, 128
    codes, many = (torch.zeros(count, inputs, dtype=torch.int8) for count in (outputs, 4 * outputs))
    scale, groups = torch.ones(outputs, 1), torch.ones(outputs, inputs // group)
    linears = [
        CodesLinear("int8", codes, scale, None),
        CodesLinear("int8", many, scale.repeat(4, 1), None),
        *([CodesLinear("fp8", codes, scale, None)] if capability >= 89 else []),
        WeightOnlyLinear(Weights("int8", codes, scale), scale[:, 0].to(HALF)),
        WeightOnlyLinear(Weights("fp8", many, scale.repeat(4, 1)), None),
        WeightOnlyLinear(Weights("fp8", codes, scale), None),
        WeightOnlyLinear(Weights("fp8", codes, groups, None, group), None),
        WeightOnlyLinear(Weights("int4", codes.view(torch.uint8)[:, ::2], groups, groups, group), None),
    ]
    for linear in linears:
        for rows in (1, 64, 100, 200):
            linear(torch.zeros(rows, inputs, dtype=HALF))


def experts(capability: int) -> None:
    """Gate and up projection of Qwen3-30B-A3B, and the one down; half of their experts."""
    for tokens in (8, 512, 2048):  # short, usual and tall tiles
        experts_of(tokens, capability)


def experts_of(tokens: int, capability: int) -> None:
    chosen = torch.zeros(tokens, 8, dtype=torch.int64)
    for outputs, inputs, gather in ((1536, 2048, True), (2048, 768, False)):
        wide, codes = torch.zeros(outputs, inputs, dtype=HALF), torch.zeros(outputs, inputs, dtype=torch.int8)
        groups = torch.ones(outputs, inputs // 128)
        scale, bias = torch.ones(outputs), torch.zeros(outputs, dtype=HALF)
        for weights in (
            DeviceWeights(wide, None, None),
            DeviceWeights(wide, None, bias),
            DeviceWeights(codes, scale, None),
            DeviceWeights(codes, scale, None, codes=True),
            DeviceWeights(codes, scale, None, floats=True),
            *([DeviceWeights(codes, scale, None, codes=True, floats=True)] if capability >= 89 else []),
            DeviceWeights(
                codes.view(torch.uint8)[:, ::2].contiguous(), groups, None, offset=groups, group=128
            ),
        ):
            x = torch.zeros(tokens if gather else 8 * tokens, inputs, dtype=HALF)
            products = ExpertProducts([weights] * 64)
            products(x, SortedPairs(chosen, 64, HALF, tall=products.tall), gather=gather)
    add_up(torch.zeros(8 * tokens, 2048, dtype=HALF), torch.ones(tokens, 8))


def sampling(capability: int) -> None:
    truncate_by_kernel(torch.rand(2, 128_256), [SamplingParams(top_k=50), SamplingParams(top_p=0.9)])


PARTS: dict[str, Callable[[int], None]] = {
    "layers": layers,
    "writes": writes,
    "attention": attention,
    "rarer attention": rarer_attention,
    "attention by rules": attention_by_rules,
    "products": products,
    "experts": experts,
    "sampling": sampling,
}


def described(kernel: Compiled) -> str:
    loops = [
        f"; a loop of {loop.instructions} instructions, {loop.ahead} copies ahead"
        for loop in kernel.loops
        if loop.ahead is not None
    ]
    return f"{kernel.name}, {kernel.shared} bytes shared, {kernel.spilled} spilled{''.join(loops)}"


def faults(gpu: PretendedGpu) -> Iterator[str]:
    for kernel in gpu.kernels:
        if kernel.spilled > MOST_SPILLED[gpu.capability]:
            yield f"{kernel.name} keeps {kernel.spilled} bytes of each thread in memory"
    waiting = [kernel.name for kernel in gpu.kernels if any(loop.ahead == 0 for loop in kernel.loops)]
    if len(waiting) > MOST_WAITING:
        yield f"loops that wait for all they have asked for, and compute meanwhile nothing: {waiting}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--capability", type=int, default=90, choices=list(MOST_SPILLED))
    parser.add_argument("parts", nargs="*", default=list(PARTS))
    options = parser.parse_args()
    gpu = PretendedGpu(options.capability)
    gpu.install()
    for part in options.parts:
        first = len(gpu.kernels)
        PARTS[part](options.capability)
        for kernel in gpu.kernels[first:]:
            print(f"{part}: {described(kernel)}", flush=True)
    found = list(faults(gpu))
    sys.exit("\n".join(found) if found else 0)


if __name__ == "__main__":
    main()
