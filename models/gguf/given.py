"""What users know a checkpoint by: a GGUF file's folder is the cache's, and its name says nothing to them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from turnout.core.errors import ModelError

__all__ = ["LINK", "given_name", "naming_given", "stated_in"]

LINK = "model.gguf"
"""In the folder that is written for a GGUF file, what leads to the file."""


def given_name(place: Path) -> Path:
    """Returns the GGUF file that a folder was written for, or that a link in it is; else the place itself."""
    link = place if place.name == LINK else place / LINK
    target = link.readlink() if link.is_symlink() else place
    return target if target.suffix == ".gguf" else place


def stated_in(folder: Path) -> str:
    """Names what a checkpoint's configuration is read from."""
    file = given_name(folder)
    return str(folder / "config.json") if file == folder else f"{file}: the metadata"


@contextmanager
def naming_given(folder: Path) -> Iterator[None]:
    """Lets errors about a ``config.json`` that was written for a GGUF file name the file."""
    try:
        yield
    except ModelError as error:
        file = given_name(folder)
        if file == folder or not str(error).startswith("config.json"):
            raise
        raise ModelError(f"{file}: the metadata, as {error}") from error
