"""Greedy tokens are transformers' own, 64 of them, in fp32: under both KV backends, alone and with 15
others, in small and large chunks, and when memory is so short that requests are preempted, computed again
or swapped out meanwhile."""

from __future__ import annotations

import pytest
from served import Checkpoint, build, decided, serve

from turnout.models.random.random_weights import write_random_checkpoint
from turnout.models.random.shapes import Shape, config_of

BIASED = {"attention_bias": True, "mlp_bias": True}
MODELS = {
    # name: family, (heads, kv heads), tied embeddings, rope, further config
    "qwen2-gqa2": ("qwen2", (4, 2), True, "default", {}),
    "qwen2-gqa7-dynamic": ("qwen2", (7, 1), False, "dynamic", {}),
    "qwen2-gqa1-yarn": ("qwen2", (4, 4), False, "yarn", {}),
    "qwen2-gqa2-linear": ("qwen2", (4, 2), True, "linear", {}),
    "llama-gqa7": ("llama", (7, 1), True, "default", {}),
    "llama-gqa2-llama3": ("llama", (4, 2), False, "llama3", {}),
    "llama-gqa1-biased": ("llama", (4, 4), True, "default", BIASED),
    "llama-gqa7-biased-yarn": ("llama", (14, 2), False, "yarn", BIASED),
}


FAST = ("qwen2-gqa7-dynamic", "llama-gqa7-biased-yarn")
"""Of both families; rotated by how long the sequence is so far, and by its positions alone. The others are
slow: that each rotates and adds as transformers does, tests/models shows without an engine."""
PARAMS = [pytest.param(name, marks=[] if name in FAST else [pytest.mark.slow]) for name in MODELS]


@pytest.fixture(scope="module", params=PARAMS)
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """A random model, 16 prompts, and what transformers makes of them."""
    folder = tmp_path_factory.mktemp(request.param)
    family, (heads, kv_heads), tied, rope, more = MODELS[request.param]
    positions = 512 if rope in ("default", "yarn", "llama3") else 64
    shape = Shape(16 * heads, 2, heads, kv_heads, 96, 160, max_positions=positions, theta=10_000.0, tied=tied)
    config = {**config_of(shape, family, rope=rope, dtype="float32"), **more}
    write_random_checkpoint(folder, config, seed=len(request.param))
    # Dynamic scaling rotates by how long the sequence is so far.
    return decided(folder, token_by_token=rope == "dynamic")


PAIRWISE = [
    ("torch", "contiguous", 16),
    ("auto", "contiguous", 4096),
    ("torch", "paged", 4096),
    ("auto", "paged", 16),
    ("torch", "paged:block_size=4,prefix_caching=false", 16),
    ("auto", "paged:block_size=4,prefix_caching=false", 4096),
]
"""Any two of kernels, KV backend and chunks meet, for each model: what is computed of a chunk, where it is
kept and how large it is are three layers of code, each of which sees the one next to it."""


@pytest.mark.parametrize(("kernels", "kv", "budget"), PAIRWISE)
def test_alone_and_with_fifteen_others(checkpoint: Checkpoint, kernels: str, kv: str, budget: int) -> None:
    engine = build(
        checkpoint.folder, kv=kv, kv_memory="64MiB", max_num_batched_tokens=budget, cpu_kernels=kernels
    )
    assert len({*checkpoint.expected[0]}) > 3, "a model that repeats itself proves nothing"
    assert serve(engine, checkpoint.prompts[:1]) == list(checkpoint.expected[:1])
    assert serve(engine, checkpoint.prompts) == list(checkpoint.expected)
    assert engine.stats().preemptions == 0


@pytest.mark.parametrize("budget", [16, 4096])
def test_with_memory_for_hardly_two_requests(checkpoint: Checkpoint, budget: int) -> None:
    room = build(checkpoint.folder, kv_memory="64MiB").scheduler.kv.capacity
    per_token = 64 * 2**20 // room
    engine = build(checkpoint.folder, kv="paged", kv_memory=per_token * 256, max_num_batched_tokens=budget)
    assert serve(engine, checkpoint.prompts) == list(checkpoint.expected)
    assert engine.stats().preemptions > 0


def test_contiguous_memory_for_one_request_at_a_time(checkpoint: Checkpoint) -> None:
    room = build(checkpoint.folder, kv_memory="64MiB", kv="contiguous").scheduler.kv.capacity
    engine = build(checkpoint.folder, kv="contiguous", kv_memory=64 * 2**20 // room * 192)
    assert serve(engine, checkpoint.prompts) == list(checkpoint.expected)


@pytest.mark.parametrize(
    ("kv", "scheduler", "preemption"),
    [
        ("paged", "fcfs", "swap"),
        pytest.param("paged:block_size=4", "mlfq:quantum=16", "auto", marks=pytest.mark.slow),
        pytest.param("contiguous", "mlfq:quantum=16", "swap", marks=pytest.mark.slow),
        ("contiguous", "mlfq:quantum=16", "auto"),
    ],
)
def test_swapped_out_and_in_again(checkpoint: Checkpoint, kv: str, scheduler: str, preemption: str) -> None:
    """Contiguous memory is reserved whole, so there only a newcomer that goes first preempts."""
    room = build(checkpoint.folder, kv_memory="64MiB").scheduler.kv.capacity
    memory = 64 * 2**20 // room * 256
    engine = build(
        checkpoint.folder,
        kv=kv,
        kv_memory=memory,
        swap_memory=8 * memory,
        preemption=preemption,
        scheduler=scheduler,
        max_num_batched_tokens=64,
    )
    assert serve(engine, checkpoint.prompts) == list(checkpoint.expected)
    assert engine.stats().swap_outs > 0
    assert engine.scheduler.kv.snapshot().swapped == 0
