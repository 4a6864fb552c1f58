"""Random GGUF files: types, shapes, mixtures of types, and damage."""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import ranks_in_threads
import torch
from family_checkpoints import write_checkpoint
from gguf_files import write_gguf
from ranks_in_threads import CONTEXT, logits_of, on_grid, on_ranks

from turnout.core.errors import ConfigError, TurnoutError
from turnout.core.interfaces.compute import ComputeContext
from turnout.kernels import CpuKernels
from turnout.models.gguf.header import BLOCKS
from turnout.models.gguf.numbers import dequantized


@pytest.mark.filterwarnings("ignore:.*encountered in multiply:RuntimeWarning")
@pytest.mark.parametrize("number", [number for number, block in BLOCKS.items() if block[0] != "f64"])
@pytest.mark.parametrize(("rows", "blocks"), [(1, 1), (7, 5)])
def test_numbers_of_every_type_are_the_librarys(number: int, rows: int, blocks: int) -> None:
    """Of random bytes, so of all codes, and of scales that are no numbers."""
    kind, _, size = BLOCKS[number]
    stored = np.random.default_rng(number).integers(0, 256, (rows, blocks * size), np.uint8)
    expected = torch.from_numpy(gguf.dequantize(stored, gguf.GGMLQuantizationType(number)))
    found = dequantized(torch.from_numpy(stored), kind)
    torch.testing.assert_close(found.float(), expected.float(), atol=0, rtol=0, equal_nan=True)


SMALL = ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "MXFP4", "F16", "BF16", "F32")
KINDS = {64: SMALL, 96: SMALL, 128: SMALL, 256: (*SMALL, "Q4_K", "Q5_K", "Q6_K")}
"""By the width of a model."""
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {},
    "qwen3": {},
    "olmo2": {},
    "granite": {},
    "gemma2": {"query_pre_attn_scalar": 24},
    "phi3": {"sliding_window": 20},
    "mixtral": {"sliding_window": None},
    "qwen2-moe": {"mlp_only_layers": []},
    "qwen3-moe": {"decoder_sparse_step": 1},
}


def drawn(seed: int) -> tuple[str, dict[str, Any], Callable[[str], str]]:
    """A family, what its config says, and a type for each tensor."""
    draw = random.Random(seed)
    name, width = draw.choice(list(FAMILIES)), draw.choice(list(KINDS))
    heads = draw.choice([2, 4, 8])
    config = {
        "hidden_size": width,
        "intermediate_size": draw.choice([width, 2 * width, 160]),
        "num_hidden_layers": draw.choice([1, 2, 3]),
        "num_attention_heads": heads,
        "num_key_value_heads": draw.choice([each for each in (1, 2, 4, 8) if heads % each == 0]),
        "vocab_size": draw.choice([160, 161, 193, 256]),
        "tie_word_embeddings": draw.random() < 0.5,
        "moe_intermediate_size": width,
        "shared_expert_intermediate_size": draw.choice([64, 256]),
    }
    kinds: dict[str, str] = {}
    some = draw.sample(KINDS[width], draw.choice([1, 2, 3]))

    def kind(tensor: str) -> str:
        return kinds.setdefault(re.sub(r"experts\.\d+\.", "experts.", tensor), draw.choice(some))

    return name, {**config, **FAMILIES[name]}, kind


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24))
def test_a_mixture_of_types_gives_the_numbers_that_it_stands_for(
    seed: int, tmp_path: Path, kernels: CpuKernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By both kinds of kernels, on one device, on two ranks where they can divide it, and in two stages."""
    name, config, kind = drawn(seed)
    write_checkpoint(name, tmp_path / "source", **config)
    file = write_gguf(tmp_path / "source", tmp_path / "model.gguf", kind, widened=tmp_path / "widened")
    meant = logits_of(tmp_path / "widened")
    within = {"atol": 1e-4 * max(1.0, float(meant.abs().max())), "rtol": 0}
    for made in (None, kernels):
        context = ComputeContext(CONTEXT.device, CONTEXT.dtype, made)
        monkeypatch.setattr(ranks_in_threads, "CONTEXT", context)
        torch.testing.assert_close(logits_of(file), meant, **within)
        try:
            together, *_ = on_ranks(2, lambda collective: logits_of(file, collective))
            torch.testing.assert_close(together, meant, **within)
        except ConfigError as error:
            assert "cannot divide" in str(error)
        if config["num_hidden_layers"] > 1:
            together, *_ = on_grid(1, 2, lambda part, line: logits_of(file, part, line=line))
            torch.testing.assert_close(together, meant, **within)


NUMBERS = (0, 1, 255, 2**31, 2**32 - 1, 2**40, 2**60, 2**63, 2**64 - 1)


def damaged(content: bytes, draw: random.Random) -> bytes:
    """Puts other bytes into the header, or cuts the file short."""
    changed = bytearray(content)
    for _ in range(draw.choice([1, 1, 2, 3])):
        at = draw.randrange(4, 2500)
        match draw.randrange(4):
            case 0:
                changed[at] = draw.randrange(256)
            case 1:
                changed[at : at + 8] = struct.pack("<Q", draw.choice(NUMBERS))
            case 2:
                changed[at] ^= 1 << draw.randrange(8)
            case _:
                changed = changed[: draw.randrange(len(changed))] if draw.random() < 0.3 else changed
                changed += bytes(max(0, 2600 - len(changed)))
    return bytes(changed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["F32", "Q8_0", "Q4_0"])
def test_a_damaged_header_ends_in_a_message(kind: str, gguf_file: Callable[..., Path]) -> None:
    """Or in another model, whose numbers nobody can know to be wrong."""
    file = gguf_file(kind, layers=1)
    content, draw = file.read_bytes(), random.Random(len(kind))
    for _ in range(300):
        file.write_bytes(damaged(content, draw))
        try:
            logits_of(file)
        except TurnoutError as error:
            assert len(str(error)) < 1000 and "\n" not in str(error)
