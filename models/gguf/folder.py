"""A GGUF file as a folder: what a Hugging Face checkpoint has beside its weights, written from the metadata.

::

    CACHE/turnout/gguf/KEY/   model.gguf → FILE   config.json   generation_config.json
                              tokenizer.json   tokenizer_config.json
                              modules.json   1_Pooling/   (of a model that embeds)

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
from turnout.models.gguf.given import LINK
from turnout.models.gguf.header import GGUFHeader, read_header

__all__ = ["folder_of"]

VERSION = 3
"""Raised when the same file should give other contents."""
KEPT = 64
"""Folders, of some 10 MB each, which are made again when they are missing."""
CONFIG, SPECIAL, TEMPLATE = "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"
TOKENIZER_FILES = ("tokenizer.json", CONFIG, SPECIAL, TEMPLATE)
UNPOOLED = 0
POOLINGS = {1: "mean", 2: "cls", 3: "lasttoken"}
"""Names of sentence-transformers by ``pooling_type``. Vectors are normalized, as by llama.cpp's server."""


def folder_of(file: Path) -> Path:
    """Returns the folder of a GGUF file. Raises ModelError for a file that cannot be served.

    A tokenizer.json beside the file is taken instead of the file's own tokenizer, and with it the files that
    belong to it. Special tokens and a chat template that they lack are the file's own.
    """
    file = file.absolute()
    header, beside = read_header(file), _tokenizer_beside(file)
    versions = [(str(each), each.stat().st_size, each.stat().st_mtime_ns) for each in (file, *beside)]
    key = hashlib.sha256(repr((VERSION, str(file.resolve()), versions)).encode()).hexdigest()[:24]
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
    texts = {"config.json": _json(config_of(header)), **_embedder(header)}
    texts["generation_config.json"] = _json(generation_config_of(header))
    if beside or header.tokenizer.text("model", "none") != "none":
        texts |= _tokenizer(header, beside)
    made: Path | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix="unfinished-", dir=folder.parent))
        for each in beside:
            shutil.copyfile(each, made / each.name)
        for name, text in texts.items():
            (made / name).parent.mkdir(exist_ok=True)
            (made / name).write_text(text, encoding="utf-8")
        (made / LINK).symlink_to(file)
        _move(made, folder)
    except OSError as error:
        if made is not None:  # a disk that is full would get fuller with each attempt
            shutil.rmtree(made, ignore_errors=True)
        raise ModelError(
            f"{folder.parent} cannot be written ({error.strerror}), where {file.name}'s configuration and "
            "tokenizer go; free space there, or set XDG_CACHE_HOME to another folder"
        ) from error


def _tokenizer(header: GGUFHeader, beside: list[Path]) -> dict[str, str]:
    """Returns the texts of the tokenizer's files, without those that lie beside the file and say all."""
    from turnout.models.gguf.tokenizer import tokenizer_config_of, tokenizer_of

    own = tokenizer_config_of(header)
    if not beside:
        return {"tokenizer.json": tokenizer_of(header).to_str(), CONFIG: _json(own)}
    given = {each.name: _object(each) for each in beside if each.name in (CONFIG, SPECIAL)}
    if TEMPLATE in (each.name for each in beside):
        own.pop("chat_template", None)
    if CONFIG in given:
        own = {name: value for name, value in own.items() if name == "chat_template"}
    stated = {**given.get(SPECIAL, {}), **given.get(CONFIG, {})}
    return {
        CONFIG: _json({**{name: own[name] for name in own if name not in stated}, **given.get(CONFIG, {})})
    }


def _object(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{file} cannot be read as JSON: {error}; fetch it again") from error
    if not isinstance(found, dict):
        raise ModelError(f"{file} should hold a JSON object, not {type(found).__name__}")
    return found


def _embedder(header: GGUFHeader) -> dict[str, str]:
    """Returns the texts of sentence-transformers' files, where the metadata says how tokens are pooled."""
    kind = header.own.integer("pooling_type", UNPOOLED, least=0)
    if kind == UNPOOLED:
        return {}
    if kind not in POOLINGS:
        known = ", ".join(f"{number} ({name})" for number, name in {UNPOOLED: "none", **POOLINGS}.items())
        raise header.own.wrong("pooling_type", f"is not supported, only {known}")
    parts = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    modules = [{"type": f"sentence_transformers.models.{part}", "path": path} for part, path in parts.items()]
    pooling = _json({"pooling_mode": POOLINGS[kind]})
    return {"modules.json": json.dumps(modules, indent=2) + "\n", "1_Pooling/config.json": pooling}


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
