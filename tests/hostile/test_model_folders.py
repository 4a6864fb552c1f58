"""Model folders that ask for more than any machine has are refused in a moment, naming file and field."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnout.core.errors import ModelError
from turnout.core.registry.registry import Registry
from turnout.models.checkpoints.checkpoint import INDEX_FILE
from turnout.models.checkpoints.readers.safetensors_open import open_tensors
from turnout.models.random.random_weights import write_random_checkpoint
from turnout.models.random.shapes import Shape, config_of
from turnout.runner.checkpoint import Checkpoint, open_checkpoint
from turnout.text.tokenizer import load_tokenizer

REGISTRY = Registry.load()
SHAPE = Shape(hidden=32, layers=1, heads=2, kv_heads=1, intermediate=64, vocab=64)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_random_checkpoint(tmp_path, config_of(SHAPE, "qwen2"))
    return tmp_path


def refusal(read: Callable[[], object]) -> str:
    """The message with which something is refused, in a moment."""
    began = time.process_time()
    with pytest.raises(ModelError) as error:
        read()
    assert time.process_time() - began < 5
    assert len(str(error.value)) < 1000
    return str(error.value)


def opened(folder: Path, **changes: Any) -> Checkpoint:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return open_checkpoint(REGISTRY, str(folder))


@pytest.mark.parametrize(
    ("field", "value", "named"),
    [
        ("num_hidden_layers", 10**9, "num_hidden_layers"),
        ("num_hidden_layers", 4096, "num_hidden_layers"),
        ("vocab_size", 10**12, "vocab_size"),
        ("vocab_size", 10**400, "vocab_size"),
        ("vocab_size", ["x" * 10**6], "vocab_size"),
        ("hidden_size", 2**30, "hidden_size"),
        ("intermediate_size", 10**9, "intermediate_size"),
        ("max_position_embeddings", 10**12, "max_position_embeddings"),
        ("rope_theta", float("inf"), "rope_theta"),
        ("rope_scaling", {"rope_type": "linear", "factor": 1e300}, "factor"),
        ("rope_scaling", {"rope_type": "linear", "factor": 1e9}, "max_position_embeddings"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_numbers_of_a_config(folder: Path, field: str, value: Any, named: str) -> None:
    """`num_hidden_layers` of 10^9 built layers until the memory was gone."""
    assert opened(folder).spec.layers == 1
    message = refusal(lambda: opened(folder, **{field: value}))
    assert "config.json" in message and named in message


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", INDEX_FILE])
def test_deep_nesting(folder: Path, name: str) -> None:
    """A RecursionError, with its traceback, ended `turnout serve`."""
    (folder / name).write_text('{"a": ' + "[" * 200_000 + "]" * 200_000 + "}")
    message = refusal(lambda: open_checkpoint(REGISTRY, str(folder)))
    assert name in message and "nested too deeply" in message


def test_deep_nesting_for_the_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text('{"a": ' + "[" * 200_000 + "]" * 200_000 + "}")
    assert str(folder) in refusal(lambda: load_tokenizer(folder))
    (folder / "tokenizer_config.json").write_text((folder / "tokenizer.json").read_text())
    assert "tokenizer_config.json is nested too deeply" in refusal(lambda: load_tokenizer(folder))


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer.json"])
def test_files_without_end(folder: Path, name: str) -> None:
    with (folder / name).open("ab") as file:
        file.truncate(10**12)
    read = load_tokenizer if name == "tokenizer.json" else opened_as_it_is
    assert f"{name} has 1,000,000,000,000 bytes" in refusal(lambda: read(folder))


def opened_as_it_is(folder: Path) -> object:
    return open_checkpoint(REGISTRY, str(folder))


# ------------------------------------------------------------------ weights


def header(content: dict[str, Any], length: int | None = None) -> bytes:
    text = json.dumps(content).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text


TENSOR = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 8,
        header({"a": TENSOR}, 2**63),
        header({"a": TENSOR}) + b"\0" * 15,
        header({"a": TENSOR, "b": TENSOR}) + b"\0" * 16,
        header({"a": {**TENSOR, "dtype": "F1024"}}) + b"\0" * 16,
        header({"a": {**TENSOR, "shape": [2**62, 2**62]}}) + b"\0" * 16,
        header({"a": {**TENSOR, "data_offsets": [2**62, 2**62 + 16]}}) + b"\0" * 16,
        struct.pack("<Q", 400_000) + b"[" * 400_000,
    ],
    ids=["empty", "ones", "length", "short", "overlap", "dtype", "shape", "offsets", "nested"],
)
def test_headers_of_weights(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(content)
    assert str(file) in refusal(lambda: open_tensors(file))


def test_a_header_without_end(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(struct.pack("<Q", 10**11))
    with file.open("ab") as content:
        content.truncate(10**12)
    assert "has a header of 100,000,000,000 bytes" in refusal(lambda: open_tensors(file))


@pytest.mark.parametrize("name", ["../outside.safetensors", "/etc/passwd", "a/b.safetensors"])
def test_an_index_that_points_outside(folder: Path, name: str) -> None:
    (folder / INDEX_FILE).write_text(json.dumps({"weight_map": {"a": name}}))
    assert "which is not a file name in the same folder" in refusal(lambda: opened(folder))


def test_an_index_of_a_hundred_thousand_shards(folder: Path) -> None:
    names = {str(k): f"{k}.safetensors" for k in range(100_000)}
    (folder / INDEX_FILE).write_text(json.dumps({"weight_map": names}))
    assert "names 100,000 shards" in refusal(lambda: opened(folder))
