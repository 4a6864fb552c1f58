"""Finds the folder of a model by its name."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from turnout.core.errors import ModelError, shortened

__all__ = ["EMBEDDED_MODELS", "resolve_model"]

EMBEDDED_MODELS = ("turnout-tiny", "turnout-tiny-draft")
"""The models that the package contains."""

EMBEDDED_FOLDER = Path(__file__).parents[1] / "tiny"

ADVICE = (
    "Give a folder, an embedded model or OWNER/NAME on the hub; where the hub is blocked, set HF_ENDPOINT "
    "to a mirror of it."
)


def resolve_model(name: str, *, revision: str | None = None) -> Path:
    """Find `name` as a local folder, an embedded model, in the Hugging Face cache, or on the hub.

    A name without an owner, such as ``Qwen2.5-0.5B``, finds the repository of that name, and
    ``OWNER/NAME:Q4_K_M`` its GGUF file of that type. revision: a branch,
    tag or commit, in the cache and on the hub. Raises ModelError, listing every place that was tried.
    """
    tried = []
    for place, look in PLACES.items():
        try:
            found = look(name, revision)
        except OSError as error:  # such as a folder of another user
            found = f"{shortened(str(error.filename))} cannot be used: {error.strerror}"
        if isinstance(found, Path):
            return found
        tried.append(f"  {place}: {found}")
    raise ModelError("\n".join((f"cannot find the model {shortened(name)}; tried", *tried, ADVICE)))


# Each of these functions returns the folder, or why the model is not there.


def _local(name: str, revision: str | None) -> Path | str:
    try:
        folder = Path(name).expanduser()
    except RuntimeError:  # of a user that there is not, or one without a home folder
        return f"no home folder is known for {name.partition('/')[0]}"
    if not os.path.exists(folder):  # False, too, for a name that no file can have
        return f"{folder.absolute()} does not exist"
    if (folder / "config.json").is_file():
        return folder
    if folder.is_dir():
        return _only_gguf(folder)
    if folder.suffix == ".gguf" and folder.is_file():
        return _of_gguf(folder)
    return f"{folder.absolute()} is a file; expected a folder, or a .gguf file"


def _of_gguf(file: Path) -> Path:
    from turnout.models.gguf.folder import folder_of  # imports numpy

    return folder_of(file)


def _only_gguf(folder: Path) -> Path | str:
    files = sorted(folder.glob("*.gguf"))
    if len(files) == 1:
        return _of_gguf(files[0])
    if files:
        return f"{folder.absolute()} holds {len(files)} GGUF files; name one, such as {files[0]}"
    return f"{folder.absolute()} holds no config.json"


def _embedded(name: str, revision: str | None) -> Path | str:
    if name not in EMBEDDED_MODELS:
        return f"only {' and '.join(EMBEDDED_MODELS)}"
    folder = EMBEDDED_FOLDER / name
    if not (folder / "config.json").is_file():
        return f"{folder} is missing; install the package again"
    return folder


def _cached(name: str, revision: str | None) -> Path | str:
    from turnout.models.hub import hub

    return _folder(hub.cached(name, revision))


def _downloaded(name: str, revision: str | None) -> Path | str:
    from turnout.models.hub import hub

    return _folder(hub.download(name, revision))


def _folder(found: Path | str) -> Path | str:
    """Returns the folder of a GGUF file; anything else as it is."""
    return _of_gguf(found) if isinstance(found, Path) and found.suffix == ".gguf" else found


PLACES: dict[str, Callable[[str, str | None], Path | str]] = {
    "local folder": _local,
    "embedded models": _embedded,
    "Hugging Face cache": _cached,
    "hub": _downloaded,
}
