"""Steps that are replayed give the tokens of plain PyTorch, whatever came in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from ragged_case import Case
from replaying import Recorder
from test_served_by_kernels import serve, served

from turnout.core.config import EngineConfig
from turnout.core.engine import Engine
from turnout.plugins.kv_backends.paged_shapes import padded_batch, padded_parts
from turnout.runner.assembly import build_engine
from turnout.runner.capture import choose_capture
from turnout.runner.model_runner import ModelRunner

# Rows that pad a step to its shape have no context, so attention leaves in them what the memory held. Nobody
# reads what becomes of that, but NumPy, which interprets the kernels, tells where it overflows.
pytestmark = pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")


def engine_of(model: Path, device: torch.device, **options: Any) -> Engine:
    # What compiled kernels of a CPU compute would not be repeated: on a GPU they have no part.
    fixed: dict[str, Any] = {"kv": "paged:attention=triton", "max_model_len": 64, "cpu_kernels": "torch"}
    fixed["enforce_eager"] = True  # nothing is captured but what a test asks for
    config = EngineConfig(model=str(model), device=device.type, dtype="float32", **{**fixed, **options})
    return build_engine(config).engine


@pytest.mark.parametrize(
    "options",
    [
        {"kv_memory": "1MiB", "gpu_kernels": "triton"},
        {"kv_memory": "1MiB", "async_scheduling": True},
        {"kv_memory": "1MiB", "spec_ngram": True, "spec_tokens": 2},
    ],
    ids=["decoding", "overlapping", "verifying"],
)
def test_tokens_are_the_same(random_model: Path, options: dict[str, Any], device: torch.device) -> None:
    plain, _ = served(random_model, "paged:attention=torch", device, kv_memory="1MiB")
    engine, recorder = engine_of(random_model, device, **options), Recorder()
    runner = engine.runner
    assert isinstance(runner, ModelRunner)
    capture = choose_capture(device, eager=False) or recorder
    engine.runner = ModelRunner(runner.model, runner.attention, device, capture)
    assert serve(engine) == plain
    assert device.type == "cuda" or recorder.replayed > 2 * recorder.captured > 0


@pytest.mark.parametrize(
    "options",
    [
        {"gpu_kernels": "triton", "max_num_batched_tokens": 7},
        {"kv": "paged:attention=triton,cascade=8", "async_scheduling": True, "max_num_batched_tokens": 11},
    ],
    ids=["with prompts", "with a prefix that is read once"],
)
def test_tokens_are_the_same_when_steps_are_cut_at_attention(
    random_model: Path, options: dict[str, Any], device: torch.device
) -> None:
    plain, _ = served(random_model, "paged:attention=torch", device, kv_memory="1MiB")
    engine = engine_of(random_model, device, kv_memory="1MiB", block_size=4, **options)
    recorder = Recorder()
    runner = engine.runner
    assert isinstance(runner, ModelRunner)
    capture = choose_capture(device, eager=False) or recorder
    engine.runner = ModelRunner(runner.model, runner.attention, device, capture)
    assert serve(engine) == plain
    assert device.type == "cuda" or (recorder.cuts == 1 and recorder.pieces >= 4 * 3)  # of two layers


@pytest.mark.parametrize(
    "spans",
    [[(17, 1), (40, 1), (5, 1)], [(600, 1), (17, 1), (1100, 1)], [(30, 3), (700, 3), (2, 3)]],
    ids=["short", "in parts", "verifying"],
)
def test_what_is_padded_and_bound_to_a_shape_equals_the_textbook(
    spans: list[tuple[int, int]], device: torch.device
) -> None:
    Case(4, 2, 64, 16, spans, shaped=True).check(device)


@pytest.mark.parametrize(("context", "parts"), [(512, 1), (513, 4), (2048, 4), (2049, 16), (100_000, 16)])
def test_few_numbers_of_parts(context: int, parts: int) -> None:
    assert padded_parts(context) == parts


def test_few_batch_sizes_and_little_padding() -> None:
    counts = (1, 2, 3, 5, 9, 33, 65, 129, 256)
    assert [padded_batch(count) for count in counts] == [1, 2, 4, 8, 16, 40, 80, 160, 256]
    sizes = {padded_batch(count) for count in range(1, 257)}
    assert len(sizes) < 24
    assert all(count <= padded_batch(count) <= max(8, 1.8 * count) for count in range(1, 257))
