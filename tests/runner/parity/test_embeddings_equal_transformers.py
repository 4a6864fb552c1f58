"""Pooled hidden states of decoders are transformers', and have the same bits alone, in any batch and in
chunks of any size."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from encoded import are_close
from family_checkpoints import write_checkpoint
from served import build

from turnout.core.engine.engine import Engine
from turnout.core.types.pooling import PoolingParams
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams

LENGTHS = (1, 2, 17, 63, 64, 65, 5, 100)
POOLINGS = ("cls", "last", "mean", "weighted-mean", "token")
FAMILIES = ["qwen3", *(pytest.param(name, marks=pytest.mark.slow) for name in ("llama", "gemma3", "gpt2"))]

Vectors = dict[str, npt.NDArray[np.float32]]


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("embedder")
    write_checkpoint(request.param, made)
    return made


def prompts(count: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(5)
    lengths = [LENGTHS[number % len(LENGTHS)] for number in range(count)]
    return [torch.randint(3, 60, (length,), generator=generator).tolist() for length in lengths]


def embed(engine: Engine, texts: Sequence[list[int]], *, together: bool = True, **params: Any) -> Vectors:
    """The vectors of texts under each pooling, beside requests that generate."""
    found: Vectors = {}
    for number, text in enumerate(texts):
        for name in POOLINGS:
            engine.add(
                RequestSpec(
                    id=f"{name}-{number}",
                    prompt=text,
                    params=SamplingParams(),
                    seed=0,
                    pooling=PoolingParams(pooling=name, **params),
                )
            )
        if together and not number % 3:
            generating = SamplingParams(max_tokens=6, temperature=0, ignore_eos=True)
            engine.add(RequestSpec(id=f"chat-{number}", prompt=text[:10], params=generating, seed=0))
        while engine.busy and (not together or number == len(texts) - 1):
            for delta in engine.step():
                assert not delta.error, delta
                if delta.pooled is not None:
                    vectors = np.frombuffer(delta.pooled.data, "<f4").reshape(delta.pooled.shape)
                    found[delta.request_id] = vectors
    return found


def test_vectors_are_those_of_transformers(folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    texts = prompts(8)
    found = embed(build(folder, kv_memory="64MiB"), texts, normalize=False)
    for number, text in enumerate(texts):
        with torch.inference_mode():
            states = model.base_model(torch.tensor([text])).last_hidden_state[0].double()
        weights = torch.arange(1, len(text) + 1)[:, None]
        expected = {
            "cls": states[0],
            "last": states[-1],
            "mean": states.mean(0),
            "weighted-mean": (states * weights).sum(0) / weights.sum(),
            "token": states,
        }
        for name, vector in expected.items():
            are_close(found[f"{name}-{number}"], vector.numpy())


def test_no_bit_depends_on_batches_or_chunks(folder: Path) -> None:
    native = partial(build, folder, kv_memory="64MiB", cpu_kernels="native")  # PyTorch's sums depend on both
    texts = prompts(16)
    alone = embed(native(), texts, together=False)
    for budget in (16, 97, 4096):
        engine = native(kv="paged:block_size=4", max_num_batched_tokens=budget)
        found = embed(engine, texts)
        assert all(np.array_equal(found[name], vector) for name, vector in alone.items()), budget


def test_vectors_are_cut_and_then_normalized(folder: Path) -> None:
    engine, texts = build(folder, kv_memory="64MiB"), prompts(3)
    whole = embed(engine, texts, normalize=False)
    cut = embed(engine, texts, dimensions=8)
    for name, vector in whole.items():
        kept = vector[..., :8].astype(np.float64)
        expected = kept / np.linalg.norm(kept, axis=-1, keepdims=True)
        np.testing.assert_allclose(cut[name], expected, atol=1e-6)
