"""Checkpoints that are stored quantized, over ranks: divided within layers, by layers, and by experts."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ranks_in_threads
import torch
from family_checkpoints import write_checkpoint
from layouts import CASES
from ranks_in_threads import CONTEXT, assert_as_on_one_device, logits_of, on_grid, on_ranks
from safetensors.torch import load_file, save_file
from torch import Tensor
from writers import Written

from turnout.core.errors import ConfigError
from turnout.core.interfaces.compute import ComputeContext
from turnout.kernels.choice import native_kernels
from turnout.models.random.random_weights import write_random_checkpoint
from turnout.models.random.shapes import Shape, config_of

LAYOUTS = ("gptq 4 bits", "awq", "fp8 blocks", "W8A8", "W8A16", "W4A16", "fp8 channels")
SIXTEEN_BITS = ("gptq 4 bits", "awq", "W8A16", "W4A16")
"""Layouts whose kernels round activations to 16 bits, which moves logits by a difference's rounding."""
SHAPES = {
    "qwen2": Shape(128, 2, 4, 2, 256, 160, max_positions=512),
    "qwen3_moe": Shape(128, 2, 4, 2, 256, 160, max_positions=512, experts=6, top=2, expert_size=128),
}


def store(folder: Path, family: str, config: dict[str, Any], write: Callable[[Tensor], Written]) -> None:
    write_random_checkpoint(folder, config_of(SHAPES[family], family, dtype="float32"), seed=5)
    stored = {}
    for name, value in load_file(folder / "model.safetensors").items():
        layer = name.removesuffix(".weight")
        parts = write(value).tensors if layer.endswith("_proj") else None
        stored |= (
            {name: value} if parts is None else {f"{layer}.{part}": each for part, each in parts.items()}
        )
    save_file(stored, folder / "model.safetensors")
    read = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**read, "quantization_config": config}))


@pytest.mark.slow
@pytest.mark.parametrize("case", LAYOUTS)
@pytest.mark.parametrize(
    ("family", "parts", "stages", "whole_experts"),
    [
        ("qwen2", 2, 1, False),
        ("qwen2", 1, 2, False),
        ("qwen2", 2, 2, False),
        ("qwen3_moe", 2, 1, False),
        ("qwen3_moe", 1, 2, False),
        ("qwen3_moe", 2, 1, True),
        ("qwen3_moe", 2, 2, True),
    ],
)
def test_ranks_compute_what_one_device_does(
    case, family, parts, stages, whole_experts, tmp_path, monkeypatch
):
    try:
        kernels = native_kernels()
    except ConfigError as error:
        pytest.skip(str(error))
    monkeypatch.setattr(ranks_in_threads, "CONTEXT", ComputeContext(CONTEXT.device, CONTEXT.dtype, kernels))
    config, write, _ = CASES[case]
    store(tmp_path, family, config, write)
    alone = logits_of(tmp_path)

    def of_rank(part, line):
        line = line if stages > 1 else None
        return logits_of(tmp_path, part, line=line, whole_experts=whole_experts)

    together, *_ = on_grid(parts, stages, of_rank)
    if parts == 1 or (case, family) == ("W8A8", "qwen2"):  # whose ranks add up integers
        assert torch.equal(together, alone)
        return
    within = 1e-3 if case in SIXTEEN_BITS else 1e-5
    assert_as_on_one_device(together, alone, within, codes=case == "W8A8")


EXACT = {"fp8 blocks": 1e-5, "gptq 8 bits": 1e-3}
"""Layouts whose arithmetic moves no token to another expert, and how far off logits may be."""
WIDE = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "q_lora_rank": 32,
    "kv_lora_rank": 32,
    "moe_intermediate_size": 64,
}


def store_latent(name: str, case: str, folder: Path, plain: Path) -> None:
    """Writes a checkpoint whose layers are quantized where they fit, and one of the numbers meant by them."""
    config, write, _ = CASES[case]
    for each in (folder, plain):
        write_checkpoint(name, each, **WIDE)
    stored: dict[str, Tensor] = {}
    meant: dict[str, Tensor] = {}
    for key, value in load_file(folder / "model.safetensors").items():
        layer = key.removesuffix(".weight")
        if "_proj" not in layer or value.ndim != 2 or value.shape[1] % 32:
            stored[key] = meant[key] = value
            continue
        written = write(value.float())
        meant[key] = written.weight.clone()
        stored |= {f"{layer}.{part}": each for part, each in written.tensors.items()}
    save_file(stored, folder / "model.safetensors")
    save_file(meant, plain / "model.safetensors")
    read = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**read, "quantization_config": config}))
    for each in ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"):
        here = [key for key in stored if f".{each}." in key]
        assert not here or any(not key.endswith((".weight", ".bias")) for key in here), each


@pytest.mark.parametrize("compiled", [False, True], ids=["torch", "compiled"])
@pytest.mark.parametrize("case", EXACT)
@pytest.mark.parametrize("name", ["deepseek-v2", "deepseek-v3"])
def test_logits_are_those_of_the_numbers(
    name: str, case: str, compiled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DeepSeek's own checkpoints in fp8 were refused: rows of queries and keys are put in another order, and
    `kv_b_proj` is no linear layer of the model."""
    if compiled:
        try:
            kernels = native_kernels()
        except ConfigError as error:
            pytest.skip(str(error))
        context = ComputeContext(CONTEXT.device, CONTEXT.dtype, kernels)
        monkeypatch.setattr(ranks_in_threads, "CONTEXT", context)
    folder, plain = tmp_path / "stored", tmp_path / "plain"
    store_latent(name, case, folder, plain)
    found, meant = logits_of(folder), logits_of(plain)
    within = EXACT[case] * max(1.0, float(meant.abs().max()))
    torch.testing.assert_close(found, meant, atol=within, rtol=0)
    together, *_ = on_ranks(2, lambda collective: logits_of(folder, collective))
    torch.testing.assert_close(together, found, atol=within, rtol=0)


DENSE = ("qwen2", "qwen3", "llama", "granite", "olmo2", "gemma2", "mistral", "smollm3")
MIXTURES = ("mixtral", "qwen3-moe")
ROUNDED = ("W8A8", "W8A16", "W4A16", "gptq", "awq")
"""How the names of layouts begin whose kernels round scales or activations, which moves logits by some
percent and tokens to other experts. Other layouts are decoded as they are."""


def store_random(seed: int, folder: Path, plain: Path) -> str:
    """Writes a random model with random layers of it in one of the layouts; returns the layout's name."""
    draw = random.Random(seed)
    case = draw.choice(list(CASES))
    name = draw.choice(DENSE if case.startswith(ROUNDED) else DENSE + MIXTURES)
    config, write, _ = CASES[case]
    sizes = {
        "hidden_size": draw.choice([64, 96, 128, 256]),
        "intermediate_size": draw.choice([64, 96, 160, 256]),
        "moe_intermediate_size": draw.choice([64, 96]),
        "num_hidden_layers": draw.choice([1, 2, 3]),
        "vocab_size": draw.choice([160, 161, 192]),
        "tie_word_embeddings": draw.random() < 0.4,
    }
    for each in (folder, plain):
        write_checkpoint(name, each, **sizes)
    stored: dict[str, Tensor] = {}
    meant: dict[str, Tensor] = {}
    left, head = draw.choice([0, 0, 0.3]), draw.random() < 0.3
    for key, value in load_file(folder / "model.safetensors").items():
        layer = key.removesuffix(".weight")
        named = key.endswith("_proj.weight") or (head and layer == "lm_head")
        fits = value.ndim == 2 and value.shape[0] % 16 == 0 and value.shape[1] % 64 == 0
        if not named or not fits or draw.random() < left:
            stored[key] = meant[key] = value
            continue
        written = write(value.float())
        meant[key] = written.weight.clone()
        stored |= {f"{layer}.{part}": each.contiguous() for part, each in written.tensors.items()}
    files = draw.choice([1, 3])
    at = {key: f"model-{draw.randrange(files)}.safetensors" for key in stored}
    for file in set(at.values()):
        save_file({key: value for key, value in stored.items() if at[key] == file}, folder / file)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": at}))
    save_file(meant, plain / "model.safetensors")
    read = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**read, "quantization_config": config}))
    return case


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_random_models_and_layouts(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By both kinds of kernels, on one device, on two ranks where they can divide it, and in two stages."""
    try:
        native = native_kernels()
    except ConfigError as error:
        pytest.skip(str(error))
    folder, plain = tmp_path / "stored", tmp_path / "plain"
    case = store_random(seed, folder, plain)
    meant = logits_of(plain)
    within = (0.1 if case.startswith(ROUNDED) else 1e-4) * meant.norm()
    for kernels in (None, native):
        context = ComputeContext(CONTEXT.device, CONTEXT.dtype, kernels)
        monkeypatch.setattr(ranks_in_threads, "CONTEXT", context)
        alone = logits_of(folder)
        assert (alone - meant).norm() < within
        try:
            together, *_ = on_ranks(2, lambda collective: logits_of(folder, collective))
            assert (together - meant).norm() < within
        except ConfigError as error:
            assert "cannot divide" in str(error)
        if json.loads((folder / "config.json").read_text())["num_hidden_layers"] > 1:
            together, *_ = on_grid(1, 2, lambda part, line: logits_of(folder, part, line=line))
            assert torch.equal(together, alone)
