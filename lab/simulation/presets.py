"""Cost models of machines that are not at hand: estimates, by data sheets and a transformer's arithmetic.

A step reads the weights once and does 2 FLOPs a weight and token, whichever takes longer; attention reads
keys and values, and does 4 FLOPs a query, position and channel. Neither peak is reached: of bandwidth 80% is
assumed, of FLOP/s 50%. On several GPUs (tensor parallelism) all of that is divided, and each layer adds two
all-reduces.

Sources: NVIDIA H100 (SXM5) and A100 (SXM4, 80 GB) data sheets, dense bf16 without sparsity; the shapes of
Llama 2 7B and 70B (Touvron et al., 2023), bf16.
"""

from __future__ import annotations

from dataclasses import dataclass

from turnout.core.errors import ConfigError, did_you_mean
from turnout.core.types.model_spec import ModelSpec, RopeSpec
from turnout.lab.simulation.cost import CostModel, Seconds

__all__ = ["PRESETS", "preset"]

BANDWIDTH_SHARE = 0.8
FLOPS_SHARE = 0.5
MEMORY_SHARE = 0.9
"""Of a GPU's memory, as `gpu_memory_utilization`."""
WORKSPACE = 2 * 2**30
"""Bytes a GPU needs beside weights and KV pool."""
LAUNCH = 5e-6
"""Seconds that a layer's kernels take to start, at least, with captured graphs."""
ALL_REDUCE = 10e-6
"""Seconds of latency of an all-reduce inside one machine."""
HOST = (1e-3, 10e-6)
"""Seconds that planning a step takes, and for each running request (bench/planning.py, and the step loop)."""
BYTES = 2
"""Of a number in bf16."""


@dataclass(frozen=True)
class Gpu:
    """Of a data sheet."""

    name: str
    bandwidth: float
    """Bytes of memory read in a second."""
    flops: float
    """Dense bf16, a second."""
    memory: float
    """Bytes."""
    link: float
    """Bytes a second to other GPUs, one way."""
    bus: float
    """Bytes a second to host memory."""


H100 = Gpu("H100 SXM", 3.35e12, 989e12, 80e9, 450e9, 50e9)
A100 = Gpu("A100 SXM 80GB", 2.039e12, 312e12, 80e9, 300e9, 25e9)


def _llama(hidden: int, intermediate: int, layers: int, heads: int, kv_heads: int) -> ModelSpec:
    return ModelSpec(
        architecture="LlamaForCausalLM",
        vocab_size=32_000,
        hidden_size=hidden,
        intermediate_size=intermediate,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=hidden // heads,
        max_positions=4096,
        norm_eps=1e-5,
        rope=RopeSpec(),
        qkv_bias=False,
        output_bias=False,
        mlp_bias=False,
        tied_embeddings=False,
        dtype="bfloat16",
        eos_token_ids=(2,),
    )


LLAMA_7B = _llama(4096, 11_008, 32, 32, 32)
LLAMA_70B = _llama(8192, 28_672, 80, 64, 8)

PRESETS = {
    "h100-7b": (H100, 1, LLAMA_7B),
    "h100-70b": (H100, 4, LLAMA_70B),
    "a100-7b": (A100, 1, LLAMA_7B),
    "a100-70b": (A100, 4, LLAMA_70B),
}


def preset(name: str) -> CostModel:
    """Raises ConfigError for a name that is not in `PRESETS`."""
    if name not in PRESETS:
        raise ConfigError(
            f"no cost model is called {name!r}{did_you_mean(name, PRESETS)}; known: {', '.join(PRESETS)}"
        )
    gpu, count, spec = PRESETS[name]
    weights = BYTES * _parameters(spec)
    return CostModel(
        name=name,
        note=f"from data sheets: {count} x {gpu.name}, Llama 2 {name.rpartition('-')[2].upper()}, bf16",
        estimate=True,
        device="cuda",
        kv_memory=int(count * (MEMORY_SHARE * gpu.memory - WORKSPACE) - weights),
        itemsize=BYTES,
        model=spec,
        seconds=_seconds(gpu, count, spec),
    )


def _seconds(gpu: Gpu, count: int, spec: ModelSpec) -> Seconds:
    bandwidth = count * BANDWIDTH_SHARE * gpu.bandwidth
    flops = count * FLOPS_SHARE * gpu.flops
    position = 2 * spec.layers * spec.kv_heads * spec.head_dim * BYTES
    # Each GPU sends and receives 2 (n - 1) / n of what is reduced, after attention and after the MLP.
    reduced = 2 * spec.layers * spec.hidden_size * BYTES
    host, runner = HOST
    return Seconds(
        fixed=spec.layers * (LAUNCH + (2 * ALL_REDUCE if count > 1 else 0.0)),
        weights=BYTES * _parameters(spec) / bandwidth,
        tokens=((0, 2 * _matrices(spec) / flops + reduced * 2 * (count - 1) / count / gpu.link),),
        row=2 * spec.hidden_size * spec.vocab_size / flops,
        read=position / bandwidth,
        pair=4 * spec.layers * spec.heads * spec.head_dim / flops,
        move=position / (count * gpu.bus),
        host=host,
        runner=runner,
    )


def _matrices(spec: ModelSpec) -> int:
    """Weights that each token meets, but for the head's, which only rows with logits do."""
    attention = spec.hidden_size * spec.head_dim * 2 * (spec.heads + spec.kv_heads)
    return spec.layers * (attention + 3 * spec.hidden_size * spec.intermediate_size)


def _parameters(spec: ModelSpec) -> int:
    return _matrices(spec) + 2 * spec.hidden_size * spec.vocab_size
