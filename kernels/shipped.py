"""Libraries of the kernels that were compiled elsewhere, for machines without a compiler.

``turnout kernels build`` makes one for each variant, named by architecture and variant. A library fits if it
loads and was compiled from these very sources, which it says itself.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
from functools import lru_cache
from pathlib import Path

from turnout.kernels.variants import Variant

__all__ = [
    "SOURCES",
    "VARIABLE",
    "UnfitLibraryError",
    "library_name",
    "shipped_folder",
    "shipped_library",
    "sources_hash",
]

SOURCES = Path(__file__).parent / "native"
VARIABLE = "TURNOUT_KERNELS"
"""The environment variable that names another folder of libraries."""


class UnfitLibraryError(Exception):
    """Says in one line why a library that is there is not taken."""


def shipped_folder() -> Path:
    """Returns where libraries are looked for: without the variable inside the package."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else Path(__file__).parent / "libraries"


def library_name(architecture: str, variant: Variant) -> str:
    return f"{architecture}-{variant.name}.so"


def shipped_library(variant: Variant) -> Path | None:
    """Returns the variant's library for this architecture, or None. Raises UnfitLibraryError."""
    path = shipped_folder() / library_name(platform.machine(), variant)
    if not path.exists():
        return None
    try:
        sources = ctypes.CDLL(str(path.absolute())).turnout_sources
    except (OSError, AttributeError) as error:
        raise UnfitLibraryError(f"{path} cannot be loaded: {error}") from error
    sources.restype = ctypes.c_char_p
    if (found := sources().decode()) != sources_hash():
        raise UnfitLibraryError(f"{path} is of other sources ({found}, not {sources_hash()})")
    return path


@lru_cache
def sources_hash() -> str:
    """Names the sources by what they hold."""
    digest = hashlib.sha256()
    for file in sorted(SOURCES.iterdir()):
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()[:16]
