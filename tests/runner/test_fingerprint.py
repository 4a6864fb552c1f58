"""The fingerprint stays the same while tokens do, and changes with whatever decides them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from turnout.config import EngineConfig
from turnout.core.registry.registry import Registry
from turnout.models.hub.resolve import resolve_model
from turnout.runner.checkpoint import open_checkpoint
from turnout.runner.compute_setup import ComputeSetup
from turnout.runner.fingerprint import fingerprint


def of(**options: object) -> str:
    config = EngineConfig(**{"device": "cpu", "cpu_kernels": "torch", "dtype": "float32", **options})
    checkpoint = open_checkpoint(Registry.load(), config.model)
    return fingerprint(config, checkpoint, ComputeSetup.chosen(config, checkpoint.spec))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"scheduler": "sjf"},
        {"max_num_seqs": 3},
        {"kv_eviction": "lfu"},
        {"pipeline_parallel_size": 2},
        {"enable_expert_parallel": True},
    ],
)
def test_what_only_decides_when_changes_nothing(options: dict[str, object]) -> None:
    assert of(**options) == of()


@pytest.mark.parametrize(
    "options",
    [
        {"dtype": "bfloat16"},
        {"quantization": "int8"},
        {"kv": "paged:dtype=int8"},
        {"kv_cache_dtype": "int8"},
        {"decoding": "beam"},
        {"hf_overrides": {"rope_theta": 20000}},
        {"tensor_parallel_size": 2},
    ],
)
def test_what_decides_tokens_changes_it(options: dict[str, object]) -> None:
    assert of(**options) != of()


def test_how_overrides_are_written_changes_nothing() -> None:
    assert of(hf_overrides='{"a":1,"b":2}') == of(hf_overrides={"b": 2, "a": 1}) != of(hf_overrides={"a": 1})


def test_ranks_that_have_whole_experts_sum_in_another_order() -> None:
    assert of(tensor_parallel_size=2, enable_expert_parallel=True) != of(tensor_parallel_size=2)


def test_it_is_the_weights_not_their_place(tmp_path: Path) -> None:
    copy = shutil.copytree(resolve_model("turnout-tiny"), tmp_path / "copy")
    assert of(model=str(copy)) == of()
    weights = copy / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert of(model=str(copy)) != of()
