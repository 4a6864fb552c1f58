"""Reads the header of a GGUF file: its metadata, and where its tensors lie.

::

    "GGUF"  version  tensor count  metadata count  |  metadata  |  tensor infos  |  padding  |  data

The library ``gguf`` reads it too, but takes half a minute for the vocabulary of a common model.
Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np

from turnout.core.errors import ModelError
from turnout.models.gguf.metadata import Metadata

__all__ = ["GGUFHeader", "GGUFTensor", "read_header"]

Value = TypeVar("Value")
MAGIC = b"GGUF"
VERSIONS = (2, 3)
FLOAT32, STRING, ARRAY = 6, 8, 9
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""The letters of `struct` for the types of metadata."""
MOST_DIMENSIONS = 4
MAX_HEADER = 64 * 2**20
"""Bytes of a header: several times those of large vocabularies. Its numbers take 16 times the memory."""
LONGEST_NAME = 64
"""Characters of a tensor's name, as the format has it."""

BLOCKS: Mapping[int, tuple[str, int, int]] = {
    0: ("f32", 1, 4),
    1: ("f16", 1, 2),
    2: ("q4_0", 32, 18),
    3: ("q4_1", 32, 20),
    6: ("q5_0", 32, 22),
    7: ("q5_1", 32, 24),
    8: ("q8_0", 32, 34),
    10: ("q2_k", 256, 84),
    11: ("q3_k", 256, 110),
    12: ("q4_k", 256, 144),
    13: ("q5_k", 256, 176),
    14: ("q6_k", 256, 210),
    16: ("iq2_xxs", 256, 66),
    17: ("iq2_xs", 256, 74),
    18: ("iq3_xxs", 256, 98),
    19: ("iq1_s", 256, 50),
    20: ("iq4_nl", 32, 18),
    21: ("iq3_s", 256, 110),
    22: ("iq2_s", 256, 82),
    23: ("iq4_xs", 256, 136),
    28: ("f64", 1, 8),
    29: ("iq1_m", 256, 56),
    30: ("bf16", 1, 2),
    34: ("tq1_0", 256, 54),
    35: ("tq2_0", 256, 66),
    39: ("mxfp4", 32, 17),
}
"""Types of tensors: their name, and the numbers and bytes of a block."""


@dataclass(frozen=True)
class GGUFTensor:
    """A tensor of a file."""

    name: str
    shape: tuple[int, ...]
    """In PyTorch's order: the last dimension lies together."""
    type: str
    start: int
    """The file's byte where it begins."""

    @property
    def row_bytes(self) -> int:
        """The bytes of a row: of the last dimension."""
        _, numbers, size = _block_of(self.type)
        return self.shape[-1] // numbers * size

    @property
    def size(self) -> int:
        """Bytes."""
        return prod(self.shape[:-1]) * self.row_bytes


@dataclass(frozen=True)
class GGUFHeader:
    """What a file says beside its numbers."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, GGUFTensor]
    """By name, in the order in which they lie in the file."""

    @property
    def architecture(self) -> str:
        return str(self.metadata.get("general.architecture", ""))

    @property
    def own(self) -> Metadata:
        """The metadata of the architecture, such as ``llama.block_count``."""
        return Metadata(self.path, self.metadata, f"{self.architecture}.")

    @property
    def tokenizer(self) -> Metadata:
        return Metadata(self.path, self.metadata, "tokenizer.ggml.")

    @property
    def whole(self) -> Metadata:
        """All metadata, by whole keys."""
        return Metadata(self.path, self.metadata)


def read_header(path: Path) -> GGUFHeader:
    """Reads the header, once for each version of the file. Raises ModelError for what is no GGUF file."""
    try:
        stat = path.stat()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from error
    return _read_version(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=4)
def _read_version(path: Path, changed: int, size: int) -> GGUFHeader:
    try:
        with path.open("rb") as file:
            return _Parser(path, file, size).header()
    except (OSError, struct.error, UnicodeDecodeError, RecursionError) as error:
        raise ModelError(f"{path} is damaged or cut short ({error}); fetch it again") from error


def _block_of(name: str) -> tuple[str, int, int]:
    return next(block for block in BLOCKS.values() if block[0] == name)


class _Parser:
    def __init__(self, path: Path, file: BinaryIO, size: int) -> None:
        self.path, self.file, self.size = path, file, size
        self.left = MAX_HEADER

    def header(self) -> GGUFHeader:
        magic = self.read(4)
        if magic != MAGIC:
            raise ModelError(f"{self.path} is no GGUF file: it begins with {magic!r}; fetch it again")
        version = self.number("I")
        if version not in VERSIONS:
            known = " and ".join(map(str, VERSIONS))
            raise ModelError(f"{self.path} has version {version} of GGUF; versions {known} are read")
        tensors, entries = self.count(24), self.count(13)
        metadata = self.once(
            "the key", ((self.string(), self.value(self.number("I"))) for _ in range(entries))
        )
        infos = self.once("the tensor", (self.info() for _ in range(tensors)))
        alignment = metadata.get("general.alignment", 32)
        if type(alignment) is not int or not 0 < alignment <= 2**20:
            raise ModelError(f"{self.path}: general.alignment = {alignment!r:.80} should be a power of 2")
        data = -(-self.file.tell() // alignment) * alignment
        placed = sorted(
            (GGUFTensor(name, shape, kind, data + start) for name, (shape, kind, start) in infos.items()),
            key=lambda tensor: tensor.start,
        )
        for tensor in placed:
            if tensor.start + tensor.size > self.size:
                raise ModelError(f"{self.path} is cut short in the tensor {tensor.name!r}; fetch it again")
        return GGUFHeader(self.path, metadata, {tensor.name: tensor for tensor in placed})

    def once(self, what: str, pairs: Iterable[tuple[str, Value]]) -> dict[str, Value]:
        """Raises ModelError for a name that comes twice."""
        found: dict[str, Value] = {}
        for name, value in pairs:
            if name in found:
                raise ModelError(f"{self.path} holds {what} {name!r:.80} a second time; convert it again")
            found[name] = value
        return found

    def info(self) -> tuple[str, tuple[tuple[int, ...], str, int]]:
        name, dimensions = self.string(), self.number("I")
        if len(name) > LONGEST_NAME:
            raise ModelError(
                f"{self.path}: a tensor's name begins with {name[:LONGEST_NAME]!r}; at most {LONGEST_NAME} "
                "characters are read; fetch it again"
            )
        if not 0 < dimensions <= MOST_DIMENSIONS:
            raise ModelError(
                f"{self.path}: {name!r} has {dimensions} dimensions; 1 to {MOST_DIMENSIONS} are read"
            )
        shape = tuple(self.number("Q") for _ in range(dimensions))[::-1]
        kind, start = self.number("I"), self.number("Q")
        if kind not in BLOCKS:
            known = ", ".join(block[0] for block in BLOCKS.values())
            raise ModelError(f"{self.path}: {name!r} has the type {kind}, which is not read; known: {known}")
        numbers = BLOCKS[kind][1]
        if not all(shape) or shape[-1] % numbers:
            raise ModelError(f"{self.path}: {name!r} has the shape {list(shape)}, in blocks of {numbers}")
        return name, (shape, BLOCKS[kind][0], start)

    def value(self, kind: int) -> Any:
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            return self.array()
        if kind not in SCALARS:
            raise ModelError(f"{self.path}: metadata of the type {kind} is not read; the file is damaged")
        number = self.number(SCALARS[kind])
        return float(str(np.float32(number))) if kind == FLOAT32 else number  # 1e-06 for 9.99999997e-07

    def array(self) -> list[Any]:
        kind = self.number("I")
        if kind in SCALARS:
            letter = SCALARS[kind]
            count = self.count(struct.calcsize(letter))
            return list(struct.unpack(f"<{count}{letter}", self.read(count * struct.calcsize(letter))))
        count = self.count(8)
        return [self.value(kind) for _ in range(count)]

    def string(self) -> str:
        return self.read(self.count(1)).decode("utf-8", errors="replace")

    def count(self, least: int) -> int:
        """A number of things of `least` bytes each. Raises ModelError for more than the file can hold."""
        count: int = self.number("Q")
        if count * least > self.size:
            raise ModelError(f"{self.path} announces {count:,} entries, more than it holds; fetch it again")
        return count

    def number(self, letter: str) -> Any:
        return struct.unpack(f"<{letter}", self.read(struct.calcsize(f"<{letter}")))[0]

    def read(self, size: int) -> bytes:
        self.left -= size
        if self.left < 0:
            raise ModelError(
                f"{self.path} has a header of more than {MAX_HEADER:,} bytes, which are not read"
            )
        return self.file.read(size)
