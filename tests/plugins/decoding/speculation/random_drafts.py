"""Random checkpoints with a tokenizer, and drafts that are right more or less often."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models

from turnout.models.checkpoints.checkpoint import SINGLE_FILE
from turnout.models.random.shapes import Shape

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
