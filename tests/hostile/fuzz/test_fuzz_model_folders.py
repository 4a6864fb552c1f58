"""Folders that hold almost a model: each is loaded or refused, in little time and memory, by a message
that says where the damage is.
"""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from folder_loader import FolderLoader
from fuzzing import Fuzz
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from values import anything

from turnout.models.hub.resolve import resolve_model

Change = Callable[[Path], None]

MODEL = resolve_model("turnout-tiny-draft")
WEIGHTS = "model.safetensors"
JSON_FILES = [
    "config.json",
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
]
UNUSED = {
    "config.json": [
        "quantization_config",
        "head_dim",
        "rope_scaling",
        "attention_bias",
        "torch_dtype",
        "text_config",
        "auto_map",
    ],
    "tokenizer_config.json": ["chat_template", "bos_token", "added_tokens_decoder", "tokenizer_class"],
    "generation_config.json": [
        "temperature",
        "top_k",
        "top_p",
        "max_new_tokens",
        "eos_token_id",
        "do_sample",
    ],
    "tokenizer.json": ["truncation", "padding"],
}
"""Keys that other models' files have."""
ODD_TENSORS = [
    {"dtype": "F32", "shape": [2**62, 4], "data_offsets": [0, 4]},
    {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]},
    {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]},
    {"dtype": "F32", "shape": [1], "data_offsets": [2**63, 2**63 + 4]},
    {"dtype": "F4", "shape": [8], "data_offsets": [0, 4]},
    {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]},
    {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]},
]


@pytest.fixture(scope="module")
def loader() -> Iterator[FolderLoader]:
    loader = FolderLoader()
    yield loader
    loader.close()


def at_path(value: Any, path: list[int], change: Callable[[Any, Any], None]) -> None:
    """Follow `path` into nested lists and objects as far as it leads, and change the last place."""
    for number, step in enumerate(path):
        places = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not places:
            return
        place = places[step % len(places)]
        inner = value[place]
        if number == len(path) - 1 or not isinstance(inner, dict | list) or not inner:
            change(value, place)
            return
        value = inner


def json_change(draw: st.DrawFn) -> Change:
    """Another value somewhere in a JSON file, none, or a key that the file lacked."""
    name = draw(st.sampled_from(JSON_FILES))
    kind = draw(st.sampled_from(["set", "set", "drop", "add"]))
    path = draw(st.lists(st.integers(0, 5000), min_size=1, max_size=4))
    value, key = draw(anything), draw(st.sampled_from(UNUSED[name]))

    def change(container: Any, place: Any) -> None:
        if kind == "drop":
            del container[place]
        else:
            container[place] = value

    def apply(folder: Path) -> None:
        content = json.loads((folder / name).read_text())
        if kind == "add":
            content[key] = value
        else:
            at_path(content, path, change)
        (folder / name).write_text(json.dumps(content))

    apply.__name__ = f"{kind} of {name} at {path} or {key!r}: {value!r:.200}"
    return apply


def header_change(draw: st.DrawFn) -> Change:
    """Another description of a tensor, or another length of all descriptions."""
    tensor = draw(st.integers(0, 100))
    odd = draw(st.one_of(st.sampled_from(ODD_TENSORS), anything))
    part = draw(st.sampled_from([None, None, "dtype", "shape", "data_offsets"]))
    length = draw(st.sampled_from([None, None, None, 0, 1, 2**20, 2**40, 2**63]))

    def apply(folder: Path) -> None:
        content = (folder / WEIGHTS).read_bytes()
        start = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:start])
        name = sorted(header)[tensor % len(header)]
        if part is None or not isinstance(header[name], dict):
            header[name] = odd
        else:
            header[name][part] = odd
        text = json.dumps(header).encode()
        told = len(text) if length is None else length
        (folder / WEIGHTS).write_bytes(told.to_bytes(8, "little") + text + content[start:])

    apply.__name__ = f"header: tensor {tensor}, {part}: {odd!r:.200}, length {length}"
    return apply


def byte_change(draw: st.DrawFn) -> Change:
    """A file that is cut short or has other bytes somewhere, or that is no file."""
    name = draw(st.sampled_from([*JSON_FILES, WEIGHTS, "chat_template.jinja"]))
    share, inserted = draw(st.floats(0, 1)), draw(st.binary(max_size=8))
    kind = draw(st.sampled_from(["cut", "other bytes", "folder", "missing"]))

    def apply(folder: Path) -> None:
        content = (folder / name).read_bytes()
        start = round(share * len(content))
        (folder / name).unlink()
        if kind == "folder":
            (folder / name).mkdir()
        elif kind != "missing":
            rest = b"" if kind == "cut" else content[start + len(inserted) :]
            (folder / name).write_bytes(content[:start] + inserted + rest)

    apply.__name__ = f"{kind}: {name} at {share}: {inserted!r}"
    return apply


@st.composite
def changes(draw: st.DrawFn) -> Change:
    return draw(st.sampled_from([json_change, json_change, header_change, byte_change]))(draw)


def test_every_folder_is_loaded_or_refused(fuzz: Fuzz, loader: FolderLoader, tmp_path: Path) -> None:
    numbers = itertools.count()

    def check(change: Change) -> None:
        folder = tmp_path / f"model{next(numbers)}"
        shutil.copytree(MODEL, folder)
        change(folder)
        outcome = loader.load(folder)
        shutil.rmtree(folder)
        if outcome["error"] is not None:
            assert outcome["refused"], f"{change.__name__}\n{outcome['error']}"
            named = any(name in outcome["error"] for name in (str(folder), *UNUSED, WEIGHTS))
            assert named, f"{change.__name__}\n{outcome['error']}"
            assert len(outcome["error"]) < 3000

    strategy: SearchStrategy[Change] = changes()
    fuzz(strategy, check, 8)
