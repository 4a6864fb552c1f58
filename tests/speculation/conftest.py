"""A random model, and drafts of it that are right more or less often."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models

from turnout.core.config import EngineConfig
from turnout.core.engine import Engine
from turnout.models.checkpoint import SINGLE_FILE
from turnout.models.random_weights import write_random_checkpoint
from turnout.models.shapes import Shape, config_of
from turnout.runner.assembly import AssembledEngine, build_engine

VOCABULARY = 160
SHAPE = Shape(64, 2, 4, 2, 96, VOCABULARY, max_positions=512, theta=10_000.0)
KV_BYTES_PER_TOKEN = 2 * 2 * 2 * 16 * 4
"""keys and values, layers, KV heads, head dim, fp32."""


def write_tokenizer(folder: Path, words: list[str] | None = None) -> None:
    words = words or [f"w{token}" for token in range(VOCABULARY)]
    vocabulary = {word: token for token, word in enumerate(words)}
    Tokenizer(models.WordLevel(vocabulary, unk_token=words[0])).save(str(folder / "tokenizer.json"))


def write_draft(source: Path, folder: Path, *, noise: float, seed: int = 3) -> Path:
    """The model itself, a little wrong."""
    folder.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_bytes((source / name).read_bytes())
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        name: value + noise * value.std() * torch.randn(value.shape, generator=generator)
        for name, value in load_file(source / SINGLE_FILE).items()
    }
    save_file(tensors, folder / SINGLE_FILE, metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="session")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    write_random_checkpoint(folder, config_of(SHAPE, "qwen2", dtype="float32"), seed=5)
    write_tokenizer(folder)
    return folder


@pytest.fixture(scope="session")
def draft_model(random_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Right about half of the time."""
    return write_draft(random_model, tmp_path_factory.mktemp("drafts") / "draft", noise=0.25)


@pytest.fixture
def assemble(random_model: Path) -> Callable[..., AssembledEngine]:
    """assemble(tokens=…, **EngineConfig fields): an engine with that many tokens of KV memory."""

    def make(tokens: int = 8192, **options: Any) -> AssembledEngine:
        memory = tokens * KV_BYTES_PER_TOKEN
        defaults = {"max_model_len": min(tokens, 512), "device": "cpu", "dtype": "float32"}
        fields = {"model": str(random_model), "kv_memory": memory, **defaults, **options}
        return build_engine(EngineConfig(**fields))

    return make


@pytest.fixture
def make_engine(assemble: Callable[..., AssembledEngine]) -> Callable[..., Engine]:
    return lambda *args, **options: assemble(*args, **options).engine
