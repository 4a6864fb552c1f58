"""Cost models of machines that are not at hand: estimates, by data sheets and a transformer's arithmetic.

A step reads the weights once and does 2 FLOPs a weight and token, whichever takes longer; attention reads
keys and values, and does 4 FLOPs a query, position and channel. Neither peak is reached: of bandwidth 80% is
assumed, of FLOP/s 50%. `Split` says what becomes of that on several GPUs.

Sources: NVIDIA H100 (SXM5) and A100 (SXM4, 80 GB) data sheets, dense bf16 without sparsity; DGX H100 and DGX
A100 data sheets for NVLink and for the network; the shapes of Llama 2 7B and 70B (Touvron et al., 2023) and
Mixtral 8x7B (Jiang et al., 2024), bf16. Of Mixtral, a step is taken to read all experts, as large batches do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

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
"""Seconds of latency of an all-reduce inside one machine,"""
NETWORK_ALL_REDUCE = 30e-6
"""and of one between machines; these and the next two are assumptions."""
SEND = 5e-6
"""Seconds of latency from one stage of a pipeline to the next."""
IMBALANCE = 1.25
"""Tokens of the GPU whose experts are chosen most, as a multiple of the mean."""
MACHINE = 8
"""GPUs that NVLink connects."""
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
    """Bytes a second to other GPUs of its machine, one way,"""
    network: float
    """and to GPUs of other machines."""
    bus: float
    """Bytes a second to host memory."""


H100 = Gpu("H100 SXM", 3.35e12, 989e12, 80e9, 450e9, 50e9, 50e9)
A100 = Gpu("A100 SXM 80GB", 2.039e12, 312e12, 80e9, 300e9, 25e9, 25e9)


@dataclass(frozen=True)
class Shape:
    """A published model."""

    name: str
    spec: ModelSpec
    experts: int = 1
    """In each layer,"""
    chosen: int = 1
    """and of them for each token."""

    @property
    def attention(self) -> int:
        """Weights of attention."""
        spec = self.spec
        return spec.layers * spec.hidden_size * spec.head_dim * 2 * (spec.heads + spec.kv_heads)

    @property
    def expert(self) -> int:
        """Weights of one expert, or the MLP, over all layers."""
        return 3 * self.spec.layers * self.spec.hidden_size * self.spec.intermediate_size

    @property
    def bytes(self) -> int:
        tables = 2 * self.spec.hidden_size * self.spec.vocab_size
        return BYTES * (self.attention + self.experts * self.expert + tables)


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


LLAMA_7B = Shape("Llama 2 7B", _llama(4096, 11_008, 32, 32, 32))
LLAMA_70B = Shape("Llama 2 70B", _llama(8192, 28_672, 80, 64, 8))
MIXTRAL = Shape(
    "Mixtral 8x7B", replace(_llama(4096, 14_336, 32, 32, 8), max_positions=32_768), experts=8, chosen=2
)


@dataclass(frozen=True)
class Split:
    """How a model is divided over GPUs.

    Tensor parallelism divides what a step reads and computes, and adds two all-reduces to each layer. A
    pipeline divides a step into as many micro-batches as it has stages, of which each stage computes one: so
    tokens and positions take a part of the time, but every micro-batch reads the weights of every stage.
    Expert parallelism gives each GPU whole experts, whose sums are reduced as those of parts are.
    """

    tensor: int = 1
    stages: int = 1
    experts: bool = False

    @property
    def gpus(self) -> int:
        return self.tensor * self.stages

    def __str__(self) -> str:
        parts = [f"tensor parallel {self.tensor}"] * (self.tensor > 1)
        parts += [f"pipeline of {self.stages}"] * (self.stages > 1)
        parts += ["expert parallel"] * self.experts
        return ", ".join(parts)

    def problem(self, shape: Shape) -> str:
        """Returns why a model cannot be divided so; empty if it can."""
        spec = shape.spec
        if not self.tensor or not self.stages:
            return "tp and pp are counted from 1"
        if spec.heads % self.tensor:
            return f"its {spec.heads} heads cannot be divided by {self.tensor}"
        if spec.layers < self.stages:
            return f"its {spec.layers} layers are no {self.stages} stages"
        if self.experts and (shape.experts == 1 or self.tensor == 1):
            return "ep divides experts over the GPUs of tp: use it with a model that has some, and with tp"
        if self.experts and shape.experts % self.tensor:
            return f"its {shape.experts} experts cannot be divided by {self.tensor}"
        return ""


PRESETS = {
    "h100-7b": (H100, LLAMA_7B, Split()),
    "h100-70b": (H100, LLAMA_70B, Split(4)),
    "h100-8x7b": (H100, MIXTRAL, Split(2)),
    "a100-7b": (A100, LLAMA_7B, Split()),
    "a100-70b": (A100, LLAMA_70B, Split(4)),
    "a100-8x7b": (A100, MIXTRAL, Split(2)),
}
"""By name; behind it, ``-tp8``, ``-pp2`` and ``-ep`` say how the model is divided instead."""
SPLIT = re.compile(r"(?P<base>.+?)(?:-tp(?P<tp>\d{1,4}))?(?:-pp(?P<pp>\d{1,4}))?(?P<ep>-ep)?")


def preset(name: str) -> CostModel:
    """Raises ConfigError for a name that is not in `PRESETS`, or a split that cannot be."""
    found = SPLIT.fullmatch(name)
    if found is None or found["base"] not in PRESETS:
        raise ConfigError(
            f"no cost model is called {name!r}{did_you_mean(name, PRESETS)}; known: {', '.join(PRESETS)}, "
            "each also with -tpN, -ppN and -ep behind it"
        )
    gpu, shape, split = PRESETS[found["base"]]
    if found["base"] != name:
        split = Split(int(found["tp"] or 1), int(found["pp"] or 1), bool(found["ep"]))
    if why := split.problem(shape):
        raise ConfigError(f"the cost model {name} cannot be: {shape.name}: {why}")
    room = split.gpus * (MEMORY_SHARE * gpu.memory - WORKSPACE)
    if room <= shape.bytes:
        raise ConfigError(
            f"the cost model {name} cannot be: {shape.name} takes {shape.bytes / 1e9:.0f} GB, and "
            f"{split.gpus} x {gpu.name} have room for {room / 1e9:.0f} GB; "
            "use more of them: a larger -tpN or -ppN"
        )
    divided = f", {split}" if split.gpus > 1 else ""
    return CostModel(
        name=name,
        note=f"from data sheets: {split.gpus} x {gpu.name}, {shape.name}, bf16{divided}",
        estimate=True,
        device="cuda",
        # Where there are more GPUs than KV heads, several keep the same one.
        kv_memory=int((room - shape.bytes) / max(1, split.tensor / shape.spec.kv_heads)),
        itemsize=BYTES,
        model=shape.spec,
        seconds=_seconds(gpu, split, shape),
    )


def _seconds(gpu: Gpu, split: Split, shape: Shape) -> Seconds:
    spec, ranks, stages = shape.spec, split.tensor, split.stages
    bandwidth = ranks * BANDWIDTH_SHARE * gpu.bandwidth
    flops = ranks * FLOPS_SHARE * gpu.flops
    position = 2 * spec.layers * spec.kv_heads * spec.head_dim * BYTES
    kept = position * max(1, ranks / spec.kv_heads)
    inside, near = ranks <= MACHINE, split.gpus <= MACHINE
    latency = (ALL_REDUCE if inside else NETWORK_ALL_REDUCE) if ranks > 1 else 0.0
    # Each GPU sends and receives 2 (n - 1) / n of what is reduced, after attention and after the MLP.
    reduced = 2 * spec.layers * spec.hidden_size * BYTES * 2 * (ranks - 1) / ranks
    passed = (stages - 1) * spec.hidden_size * BYTES
    computed = shape.attention + shape.chosen * shape.expert * (IMBALANCE if split.experts else 1)
    token = (
        2 * computed / flops
        + reduced / (gpu.link if inside else gpu.network)
        + passed / (gpu.link if near else gpu.network)
    )
    host, runner = HOST
    return Seconds(
        fixed=spec.layers * (LAUNCH + 2 * latency) + (stages - 1) * SEND,
        weights=shape.bytes / bandwidth,
        tokens=((0, token / stages),),
        row=2 * spec.hidden_size * spec.vocab_size / flops,
        read=kept / bandwidth / stages,
        pair=4 * spec.layers * spec.heads * spec.head_dim / flops / stages,
        move=kept / (split.gpus * gpu.bus),
        host=host,
        runner=runner,
    )
