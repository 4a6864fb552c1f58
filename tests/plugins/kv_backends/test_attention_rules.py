"""Both built-in backends follow the rules of layers, one by one and mixed, whatever a step is made of."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from turnout.core.interfaces.compute import ComputeContext
from turnout.core.interfaces.kv import KVBackend
from turnout.core.types.layer_attention import ATTENTION_FEATURES, LayerAttention
from turnout.core.types.plan import Chunk, Plan
from turnout.kernels import CpuKernels
from turnout.plugins.kv_backends.contiguous.backend import Contiguous
from turnout.plugins.kv_backends.none.attention import EncoderAttention
from turnout.plugins.kv_backends.paged.backend import Paged
from turnout.testing.checks.attention_traffic import (
    EXAMPLES,
    Rules,
    Traffic,
    new_sequence,
    random_traffic,
    spec_of,
)

PLAIN = EXAMPLES["plain"][0]
LATENT = EXAMPLES["values_in_keys"][0]
BACKENDS = {"paged": Paged(block_size=4), "contiguous": Contiguous()}


@pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS)
@pytest.mark.parametrize("rules", EXAMPLES.values(), ids=EXAMPLES)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_attention_is_the_textbook(backend: KVBackend, rules: Rules, seed: int) -> None:
    """With chunks, forks, common prefixes and swapping."""
    traffic = Traffic(backend, rules)
    random_traffic(traffic, random.Random(seed))
    assert traffic.checked > 200


@pytest.mark.parametrize(
    ("name", "dtype", "tolerance"),
    [
        ("paged", torch.float32, 1e-5),
        ("contiguous", torch.bfloat16, 0.06),
        pytest.param("paged", torch.bfloat16, 0.06, marks=pytest.mark.slow),
        pytest.param("contiguous", torch.float32, 1e-5, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("rules", EXAMPLES.values(), ids=EXAMPLES)
def test_compiled_attention_is_the_textbook(
    kernels: CpuKernels, name: str, rules: Rules, dtype: torch.dtype, tolerance: float
) -> None:
    """In bfloat16, weights may be rounded, and results are."""
    traffic = Traffic(BACKENDS[name], rules, dtype=dtype, tolerance=tolerance, kernels=kernels)
    assert traffic.attention.capabilities.in_place
    assert not [line for line in traffic.attention.summary if "PyTorch" in line], "kernels attend"
    random_traffic(traffic, random.Random(11))
    assert traffic.checked > 200


@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "compiled"])
@pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS)
def test_what_lies_before_a_window_is_not_read(
    kernels: CpuKernels, backend: KVBackend, compiled: bool
) -> None:
    """There is NaN in it, which would spread. The compiled kernels read in steps of 64 positions."""
    rules = [replace(PLAIN, window=6)] * 2
    traffic = Traffic(
        backend, rules, dtype=torch.float32, tolerance=1e-5, kernels=kernels if compiled else None
    )
    one, other = (new_sequence([token] * 100) for token in (1, 2))
    traffic.step([(one, 90), (other, 80)])
    attention: Any = traffic.attention
    for each in (one, other):
        passed = attention.slots(Chunk(each, 0, each.tokens[:64], 0))
        for tensor in attention.storage.tensors:
            tensor[:, passed] = torch.nan
    traffic.step([(one, 1), (other, 3)])
    traffic.step([(one, 1), (other, 1)])
    traffic.step([(one, 8), (other, 16)])


def test_start_up_says_where_kernels_cannot_attend(kernels: CpuKernels) -> None:
    wide = [replace(PLAIN, key_dim=1040)]
    (line,) = Traffic(Paged(), wide, dtype=torch.float32, kernels=kernels, tokens=64).attention.summary
    assert "plain PyTorch" in line and "1040" in line


def test_encoders_with_wide_heads_attend_in_pytorch(kernels: CpuKernels) -> None:
    """The kernels put zeros in place of missing rows: 1,024 of them, beyond which they read on."""

    def attention(width: int, kernels: CpuKernels | None) -> EncoderAttention:
        rule = LayerAttention(heads=1, kv_heads=1, key_dim=width, value_dim=width, causal=False)
        return EncoderAttention([rule], ComputeContext(torch.device("cpu"), torch.float32, kernels))

    wide, plain = attention(1040, kernels), attention(1040, None)
    assert "1040" in wide.summary[0]
    assert not wide.capabilities.whole_texts
    texts = [new_sequence([token] * length) for token, length in ((1, 7), (2, 3))]
    plan = Plan([Chunk(text, 0, text.tokens, 0) for text in texts], [])
    q, k, v = torch.randn(3, 10, 1, 1040)
    for each in (wide, plain):
        each.bind(plan)
    assert torch.equal(wide(0, q, k, v), plain(0, q, k, v))
    narrow = attention(64, kernels)
    assert narrow.capabilities.whole_texts
    assert not narrow.summary


def rounded(vectors: Tensor) -> Tensor:
    """What KV in int8 makes of them."""
    scale = (vectors.abs().amax(-1, keepdim=True) / 127).to(torch.bfloat16).float()
    return (vectors / scale).round() * scale


@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "compiled"])
@pytest.mark.parametrize("kind", [Paged, pytest.param(Contiguous, marks=pytest.mark.slow)])
@pytest.mark.parametrize("rules", EXAMPLES.values(), ids=EXAMPLES)
def test_kv_in_8_bits_is_rounded_by_vectors_of_each_shape(
    kernels: CpuKernels, kind: type[Paged | Contiguous], rules: Rules, compiled: bool
) -> None:
    traffic = Traffic(
        kind(dtype="int8"),
        rules,
        dtype=torch.float32,
        stored=rounded,
        tolerance=1e-4,
        kernels=kernels if compiled else None,
    )
    assert traffic.attention.capabilities.in_place == compiled
    random_traffic(traffic, random.Random(1))
    assert traffic.checked > 200


@pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS)
@pytest.mark.parametrize("rules", EXAMPLES.values(), ids=EXAMPLES)
def test_the_pool_takes_what_the_backend_says(backend: KVBackend, rules: Rules) -> None:
    traffic = Traffic(backend, rules, dtype=torch.float32)
    pool = sum(tensor.nbytes for tensor in traffic.attention.storage.tensors)  # type: ignore[attr-defined]
    spec = spec_of(rules)
    assert pool == traffic.kv.capacity * backend.for_model(spec).bytes_per_token(spec, 4)


def test_8_bits_take_a_scale_for_each_vector() -> None:
    rules = [PLAIN, LATENT, replace(PLAIN, kv_from=0), replace(PLAIN, value_dim=4)]
    numbers = 2 * (8 + 8) + 12 + 2 * (8 + 4)
    assert Paged(dtype="int8").bytes_per_token(spec_of(rules), 4) == numbers + 2 * (4 + 1 + 4)


def test_both_declare_all_features() -> None:
    asked = frozenset().union(*(spec_of(rules).attention_features() for rules in EXAMPLES.values()))
    assert asked == ATTENTION_FEATURES
    assert all(backend.attention_features == ATTENTION_FEATURES for backend in BACKENDS.values())


def test_scores_are_computed_in_slices_where_they_would_take_much_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("turnout.kernels.attention.dense.SCORES", 100)
    for rules in (EXAMPLES["all at once"], EXAMPLES["as gpt-oss"]):
        random_traffic(Traffic(BACKENDS["paged"], rules), random.Random(5))
