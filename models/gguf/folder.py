"""A GGUF file as a folder: what a Hugging Face checkpoint has beside its weights, written from the metadata.

::

    CACHE/turnout/gguf/KEY/   model.gguf → FILE   config.json   generation_config.json
                              tokenizer.json   tokenizer_config.json

It is written once for each version of the file; all that reads checkpoints reads the folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from turnout.core.errors import ModelError
from turnout.core.user_cache import user_cache
from turnout.models.gguf.configs import config_of, generation_config_of
from turnout.models.gguf.header import GGUFHeader, read_header

__all__ = ["LINK", "folder_of"]

LINK = "model.gguf"
VERSION = 1
"""Raised when the same file should give other contents."""
KEPT = 64
"""Folders, of some 10 MB each, which are made again when they are missing."""
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
)


def folder_of(file: Path) -> Path:
    """Returns the folder of a GGUF file. Raises ModelError for a file that cannot be served.

    A tokenizer.json beside the file is taken instead of the file's own tokenizer.
    """
    header = read_header(file.absolute())
    stat, beside = file.stat(), _tokenizer_beside(file)
    version = (VERSION, str(file.resolve()), stat.st_size, stat.st_mtime_ns, [str(each) for each in beside])
    key = hashlib.sha256(repr(version).encode()).hexdigest()[:24]
    folder = _cache_folder() / key
    if not (folder / "config.json").is_file():
        _write(folder, header, file, beside)
        _keep_latest(folder.parent)
    _note_use(folder)
    return folder


def _tokenizer_beside(file: Path) -> list[Path]:
    there = [file.parent / name for name in TOKENIZER_FILES]
    return [each for each in there if each.is_file()] if there[0].is_file() else []


def _write(folder: Path, header: GGUFHeader, file: Path, beside: list[Path]) -> None:
    texts = {
        "generation_config.json": _json(generation_config_of(header)),
        "config.json": _json(config_of(header)),
    }
    if not beside and header.metadata.get("tokenizer.ggml.model") not in (None, "none"):
        from turnout.models.gguf.tokenizer import tokenizer_config_of, tokenizer_of

        texts["tokenizer.json"] = tokenizer_of(header).to_str()
        texts["tokenizer_config.json"] = _json(tokenizer_config_of(header))
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix="unfinished-", dir=folder.parent))
        for name, text in texts.items():
            (made / name).write_text(text, encoding="utf-8")
        for each in beside:
            shutil.copyfile(each, made / each.name)
        (made / LINK).symlink_to(file.resolve())
        _move(made, folder)
    except OSError as error:
        raise ModelError(
            f"{folder.parent} cannot be written ({error.strerror}), where {file.name}'s configuration and "
            "tokenizer go; free space there, or set XDG_CACHE_HOME to another folder"
        ) from error


def _move(made: Path, folder: Path) -> None:
    """Another process may have been faster; its folder holds the same."""
    try:
        made.rename(folder)
    except OSError:
        if not (folder / "config.json").is_file():
            raise
        shutil.rmtree(made)


def _note_use(folder: Path) -> None:
    with suppress(OSError):  # a cache that others filled may be read alone
        os.utime(folder)


def _keep_latest(cache: Path) -> None:
    """Removes the folders that were used longest ago, beyond `KEPT` of them."""
    with suppress(OSError):  # another process may remove them, too
        for folder in sorted(cache.iterdir(), key=lambda each: each.stat().st_mtime)[:-KEPT]:
            shutil.rmtree(folder, ignore_errors=True)


def _cache_folder() -> Path:
    try:
        return user_cache() / "gguf"
    except RuntimeError:
        raise ModelError("there is no home folder to keep a tokenizer in; set XDG_CACHE_HOME") from None


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2) + "\n"
