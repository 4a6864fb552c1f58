"""Whole engines on a GPU by Triton's kernels: tokens are those of plain PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from card_tensors import Tensors
from serving import BY_PYTORCH, OVERFLOWS, PROMPTS, built, counted, serve, waiting

from turnout.plugins.kv_backends.paged.device import kernel_attention as paged_kernels
from turnout.plugins.kv_backends.paged.device.shared_prefixes import SharedPrefix, shared_prefixes
from turnout.plugins.quantization.gpu import products
from turnout.runner.execution.model_runner import ModelRunner

pytestmark = pytest.mark.filterwarnings(OVERFLOWS)

ALIKE = PROMPTS[:2]
SWAPPING = {"preemption": "swap", "swap_memory": "1MiB"}
TINY = 24 * 2 * 2 * 2 * 16 * 4
"""Bytes of a pool of 24 positions."""
SHORT = {"greedy": {"temperature": 0, "max_tokens": 4}}
"""A prompt, and a step that is launched, one that is captured and one that is replayed."""


GREEDY = {"greedy": {"temperature": 0}}


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"async_scheduling": False}, marks=pytest.mark.slow),
        pytest.param({"spec_ngram": True, "spec_tokens": 2}, marks=pytest.mark.slow),
    ],
    ids=["overlapping", "step after step", "verifying"],
)
def test_what_is_replayed_whole(
    options: dict[str, Any], random_model: Path, card: Tensors, monkeypatch: pytest.MonkeyPatch
) -> None:
    captures = counted(monkeypatch)
    expected = serve(built(random_model, "cpu"), GREEDY)
    engine = built(random_model, "cuda", **options)
    waiting(card)
    assert serve(engine, GREEDY) == expected
    assert waiting(card) <= {"verification.py"}
    assert captures.replayed > 2 * captures.whole > 0


@pytest.mark.slow
def test_what_is_replayed_in_pieces(
    random_model: Path, card: Tensors, monkeypatch: pytest.MonkeyPatch
) -> None:
    captures = counted(monkeypatch)
    options = {"block_size": 4, "max_num_batched_tokens": 7}
    expected = serve(built(random_model, "cpu", **options), GREEDY)
    engine = built(random_model, "cuda", **options)
    waiting(card)
    assert serve(engine, GREEDY) == expected
    assert not waiting(card)
    assert captures.cuts == 1 and captures.pieces >= 4 * 3  # of two layers


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"kv": "paged:dtype=int8"}, marks=pytest.mark.slow),
        {"kv_memory": TINY, "max_model_len": 16, "block_size": 4, **SWAPPING},
    ],
    ids=["int8 KV", "swapped"],
)
def test_tokens_are_those_of_pytorch(options: dict[str, Any], random_model: Path, card: Tensors) -> None:
    expected = serve(built(random_model, "cpu", kv=options.get("kv", "paged")), SHORT, ALIKE)
    engine = built(random_model, "cuda", **options)
    waiting(card)
    assert serve(engine, SHORT, ALIKE) == expected
    assert not waiting(card)
    assert bool(engine.stats().preemptions) == ("preemption" in options)


@pytest.mark.slow
def test_a_prefix_that_is_read_once_changes_no_token(
    random_model: Path, card: Tensors, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = list[SharedPrefix]()

    def watched(*args: Any) -> list[SharedPrefix]:
        found = shared_prefixes(*args)
        read.extend(found)
        return found

    monkeypatch.setattr(paged_kernels, "shared_prefixes", watched)
    # Who comes in the same step finds nothing: the second prompt has to come after the first.
    options: dict[str, Any] = {"block_size": 4, "max_num_batched_tokens": 11}
    captures = counted(monkeypatch)
    expected = serve(built(random_model, "cpu", **options), GREEDY)
    engine = built(random_model, "cuda", kv="paged:cascade=8", **options)
    waiting(card)
    assert serve(engine, GREEDY) == expected
    assert read, "no prefix was read once"
    assert not waiting(card)
    assert captures.cuts == 1 and captures.pieces >= 4 * 3  # of two layers


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["int8", "int8wo", "fp8wo", "int4wo"])
def test_quantized_layers_that_read_the_same_input_are_one(
    scheme: str, random_model: Path, card: Tensors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "MOST_PARTS", 1)  # into how many parts inputs are cut depends on outputs
    found = []
    for kernels in ("triton", "torch"):
        options = {**BY_PYTORCH, "gpu_kernels": kernels, "quantization": scheme}
        engine = built(random_model, "cuda", **options)
        assert isinstance(engine.runner, ModelRunner)
        layers = engine.runner.model.model.layers  # type: ignore[union-attr]
        joints = [getattr(part, "joint", None) for layer in layers for part in (layer.self_attn, layer.mlp)]  # type: ignore[union-attr]
        assert all(type(joint).__module__.endswith("gpu.layers") for joint in joints) == (kernels == "triton")
        waiting(card)
        found.append(serve(engine, SHORT, ALIKE))
        assert not waiting(card)
    assert found[0] == found[1]
