"""Every native family serves transformers' greedy tokens, 64 of them, in fp32: of a checkpoint that
transformers wrote, alone and with 15 others, in small and large chunks, under both KV backends, by native
kernels and by PyTorch, and preempted."""

from __future__ import annotations

import pytest
from family_checkpoints import FAMILIES, write_checkpoint
from served import Checkpoint, build, decided, serve

SERVED = ("gemma3", "gpt-oss-mxfp4", "deepseek-v3")
"""What is kept of them differs: that of a window and all, sinks beside experts, latent vectors. The others
are slow here: that each computes what transformers does, tests/models shows without an engine."""
PREEMPTED = ("gemma3", "deepseek-v3")
"""The embedded model, of which all is kept, is preempted by many other tests."""
PARAMS = [pytest.param(name, marks=[] if name in SERVED else [pytest.mark.slow]) for name in FAMILIES]


@pytest.fixture(scope="module", params=PARAMS)
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp(request.param)
    write_checkpoint(request.param, folder)
    return decided(folder, token_by_token=False)


@pytest.mark.parametrize(
    ("kernels", "kv", "budget"),
    [
        ("auto", "paged:block_size=4", 16),
        pytest.param("torch", "contiguous", 16, marks=pytest.mark.slow),
        pytest.param("auto", "paged:block_size=4", 4096, marks=pytest.mark.slow),
    ],
)
def test_alone_and_with_fifteen_others(checkpoint: Checkpoint, kernels: str, kv: str, budget: int) -> None:
    engine = build(
        checkpoint.folder, kv=kv, kv_memory="64MiB", max_num_batched_tokens=budget, cpu_kernels=kernels
    )
    assert len({*checkpoint.expected[0]}) > 3, "a model that repeats itself proves nothing"
    assert serve(engine, checkpoint.prompts[:1]) == list(checkpoint.expected[:1])
    assert serve(engine, checkpoint.prompts) == list(checkpoint.expected)


@pytest.mark.parametrize(
    "checkpoint",
    [pytest.param(name, marks=[] if name in PREEMPTED else [pytest.mark.slow]) for name in FAMILIES],
    indirect=True,
)
@pytest.mark.parametrize("preemption", [pytest.param("recompute", marks=pytest.mark.slow), "swap"])
def test_preempted(checkpoint: Checkpoint, preemption: str) -> None:
    room = build(checkpoint.folder, kv_memory="64MiB").scheduler.kv.capacity
    memory = 64 * 2**20 // room * 256
    engine = build(
        checkpoint.folder,
        kv="paged",
        kv_memory=memory,
        swap_memory=8 * memory if preemption == "swap" else 0,
        preemption=preemption,
        max_num_batched_tokens=16 if preemption == "recompute" else 64,
    )
    assert serve(engine, checkpoint.prompts) == list(checkpoint.expected)
    assert engine.stats().preemptions > 0
