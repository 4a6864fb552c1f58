"""What a trial of transformers' code found, kept in the user's cache: the next start needs no transformers.

A model that Turnout's own decoder computes is tried once for each ``config.json``, version of transformers,
of torch and of this code. What is kept are numbers and names; no code is read back.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from turnout.core.types.model_spec import ModelSpec
from turnout.core.user_cache import user_cache

__all__ = ["RememberedDecoder", "recall", "remember"]

FAULTS = (OSError, RuntimeError, ValueError, TypeError, ImportError)
"""Of a cache that cannot be read or written, or of values that have no JSON; msgspec's are ValueErrors."""


class RememberedDecoder(msgspec.Struct, frozen=True):
    """A model that Turnout's decoder computes."""

    spec: ModelSpec
    """As it is served."""
    decoder: ModelSpec
    """As the decoder is built."""
    names: dict[str, str]
    """The module's names of the checkpoint's tensors."""


def recall(config: Mapping[str, Any]) -> RememberedDecoder | None:
    """Returns what an earlier start kept for this ``config.json``; None: nothing that can be read."""
    try:
        return msgspec.json.decode(_file(config).read_bytes(), type=RememberedDecoder)
    except FAULTS:
        return None


def remember(config: Mapping[str, Any], found: RememberedDecoder) -> None:
    """Keeps what was found, if the cache can be written: to start faster is all that it is for."""
    with suppress(*FAULTS):
        file = _file(config)
        content = msgspec.json.encode(found)
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, unfinished = tempfile.mkstemp(dir=file.parent)
        try:
            with os.fdopen(handle, "wb") as out:
                out.write(content)
            Path(unfinished).rename(file)
        finally:
            Path(unfinished).unlink(missing_ok=True)  # of a disk that is full


def _file(config: Mapping[str, Any]) -> Path:
    known = json.dumps([config, version("transformers"), version("torch"), _sources()], sort_keys=True)
    return user_cache() / "decoders" / f"{hashlib.sha256(known.encode()).hexdigest()[:32]}.json"


@cache
def _sources() -> str:
    """Hashes the code that a trial tries."""
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()
