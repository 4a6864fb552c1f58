"""Tiny random models, loaded by Turnout and by transformers, and an attention to run them with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from turnout.core.interfaces.compute import ComputeContext
from turnout.models.checkpoints.checkpoint import read_config
from turnout.models.checkpoints.loading import load_model
from turnout.models.families import Llama, Olmo2, Qwen2, Qwen3, SmolLM3
from turnout.models.random.random_weights import write_random_checkpoint
from turnout.models.random.shapes import Shape, config_of

FAMILIES = {
    "qwen2": Qwen2(),
    "llama": Llama(),
    "qwen3": Qwen3(),
    "olmo2": Olmo2(),
    "smollm3": SmolLM3(),
}


@pytest.fixture(scope="session", autouse=True)
def _on_one_thread(one_thread: None) -> None:
    """All of them."""


class OneSequence:
    """Attention over one sequence whose keys and values are kept in a list. Implements `Attend`."""

    def __init__(self) -> None:
        self.kept: dict[int, tuple[Tensor, Tensor]] = {}

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if layer in self.kept:
            k, v = (torch.cat(pair) for pair in zip(self.kept[layer], (k, v), strict=True))
        self.kept[layer] = k, v
        past = len(k) - len(q)
        mask = torch.ones(len(q), len(k), dtype=torch.bool).tril(past)
        heads = (x.transpose(0, 1) for x in (q, k, v))
        return scaled_dot_product_attention(*heads, attn_mask=mask, enable_gqa=True).transpose(0, 1)


class Served:
    """A loaded model with greedy decoding for a single sequence."""

    def __init__(self, module: nn.Module, make_attend: Callable[[], Any] = OneSequence) -> None:
        self.module, self._make_attend = module, make_attend

    @torch.inference_mode()
    def logits(self, tokens: list[int], chunk: int | None = None) -> Tensor:
        """The logits of every token, [tokens, vocab], computed `chunk` tokens at a time."""
        attend, size = self._make_attend(), chunk or len(tokens)
        rows = [
            self._step(tokens[start : start + size], start, attend) for start in range(0, len(tokens), size)
        ]
        return torch.cat(rows)

    @torch.inference_mode()
    def greedy(self, prompt: list[int], count: int) -> list[int]:
        attend, tokens, done = self._make_attend(), list(prompt), 0
        for _ in range(count):
            row = self._step(tokens[done:], done, attend)[-1]
            done = len(tokens)
            tokens.append(int(row.argmax()))
        return tokens[len(prompt) :]

    def _step(self, tokens: list[int], start: int, attend: Any) -> Tensor:
        positions = torch.arange(start, start + len(tokens))
        return self.module.logits(self.module(torch.tensor(tokens), positions, attend))


@pytest.fixture
def tiny_config() -> Callable[..., dict[str, Any]]:
    """config(family, rope, **keys): two layers of hidden size 64, 32 positions before any scaling."""

    def config(family: str = "llama", rope: str = "default", **keys: Any) -> dict[str, Any]:
        shape = Shape(64, 2, 4, 2, 96, vocab=160, max_positions=32, theta=10_000.0, tied=False)
        made = config_of(shape, family, rope=rope, dtype="float32")
        return {**made, **keys}

    return config


@pytest.fixture
def checkpoint(tmp_path: Path) -> Callable[..., Path]:
    """checkpoint(config, **options): a folder with random weights."""

    def write(config: Mapping[str, Any], **options: Any) -> Path:
        folder = tmp_path / f"model-{len(list(tmp_path.iterdir()))}"
        write_random_checkpoint(folder, config, **options)
        return folder

    return write


@pytest.fixture
def load() -> Callable[..., nn.Module]:
    """load(folder, dtype=…, kernels=…, quantizer=…): the module on the CPU."""

    def load_folder(folder: Path, dtype: torch.dtype = torch.float32, **options: Any) -> nn.Module:
        config = read_config(folder)
        family = FAMILIES[config["model_type"]]
        context = ComputeContext(torch.device("cpu"), dtype, options.pop("kernels", None))
        return load_model(folder, family, family.spec(config), context, **options)

    return load_folder


@pytest.fixture
def served() -> type[Served]:
    """served(module): decodes with a module that is loaded already."""
    return Served


@pytest.fixture
def serve(load: Callable[..., nn.Module]) -> Callable[[Path], Served]:
    return lambda folder: Served(load(folder))
