"""Finds a GGUF file of a repository by a name such as ``OWNER/NAME:Q4_K_M``, in the cache or on the hub."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

__all__ = ["chosen_file", "only_gguf", "split_name"]

NAME = re.compile(r"([^:/]+/[^:/]+):([\w.-]+)")
SPLIT = re.compile(r"-\d{5}-of-\d{5}\.gguf$", re.IGNORECASE)
PROJECTOR = "mmproj"
"""How files of a model's eyes begin, which are no model."""


def split_name(name: str) -> tuple[str, str] | None:
    """Returns repository and type of weights of ``OWNER/NAME:TYPE``; None for another name."""
    found = NAME.fullmatch(name)
    return (found[1], found[2]) if found else None


def chosen_file(files: Iterable[str], kind: str) -> str | Exception:
    """Returns the file whose name holds `kind` as a word; or, as an error, why there is none to choose."""
    models = sorted(each for each in files if each.lower().endswith(".gguf") and not _is_projector(each))
    if not models:
        return LookupError("holds no GGUF file")
    word = re.compile(rf"(^|[-._/]){re.escape(kind)}([-._/]|$)", re.IGNORECASE)
    fitting = [each for each in models if word.search(each)]
    whole = [each for each in fitting if not SPLIT.search(each)]
    if len(whole) == 1:
        return whole[0]
    if fitting and not whole:
        return LookupError(f"{fitting[0]} is one of several; join them with llama-gguf-split --merge")
    if whole:
        return LookupError(f"{kind} fits {', '.join(whole)}")
    return LookupError(f"no GGUF file of the type {kind}; there are {', '.join(models)}")


def only_gguf(files: Iterable[str]) -> str:
    """Says how to name one of a repository's GGUF files, if it has some; else nothing."""
    some = any(each.lower().endswith(".gguf") for each in files)
    return ", only GGUF files: name one by its type, as OWNER/NAME:Q4_K_M" if some else ""


def _is_projector(file: str) -> bool:
    return Path(file).name.lower().startswith(PROJECTOR)
