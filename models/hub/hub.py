"""Finds models in the Hugging Face cache and on the hub.

huggingface_hub reads HF_HOME, HF_ENDPOINT, HF_HUB_OFFLINE and HF_TOKEN once, when it is imported.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from http.client import OK
from pathlib import Path

from huggingface_hub import HfApi, constants, get_session, get_token, hf_hub_download, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from turnout.core.errors import ModelError
from turnout.models.checkpoints.checkpoint import weight_files
from turnout.models.embedder.folder import module_files
from turnout.models.hub.gguf_names import chosen_file, only_gguf, split_name
from turnout.models.hub.short_names import likely_repositories

__all__ = ["cached", "download"]

logger = logging.getLogger(__name__)

NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
ANSWER_SECONDS = 5.0
"""Time in which the hub must answer the first request; otherwise it counts as unreachable."""

WANTED = ["*.json", "*.safetensors", "*.jinja", "tokenizer.model", "merges.txt", "vocab.txt", "*.py"]
# Subfolders, but for those of an embedder's modules, and files called "consolidated", hold the same weights
# in other formats.
UNWANTED = ["*/*", "consolidated*"]


def cached(name: str, revision: str | None) -> Path | str:
    """The snapshot of a repository in the cache, or a GGUF file of it, or why there is none."""
    root = Path(constants.HF_HUB_CACHE)
    if gguf := split_name(name):
        return _cached_file(root, *gguf, revision or constants.DEFAULT_REVISION)
    reasons = []
    for repository in _cached_repositories(root, name):
        folder = _snapshot(root, repository, revision or constants.DEFAULT_REVISION)
        reason = _incomplete(folder) if folder else f"no revision {revision or constants.DEFAULT_REVISION!r}"
        if folder and not reason:
            return folder
        reasons.append(f"{repository}: {reason}")
    return "; ".join(reasons) or f"{root} holds no repository of this name"


def download(name: str, revision: str | None) -> Path | str:
    """Download a repository, or a GGUF file of it; returns the snapshot or file, or why there is none."""
    if constants.HF_HUB_OFFLINE:
        return f"{constants.ENDPOINT} was not asked, HF_HUB_OFFLINE is set"
    plain, kind = split_name(name) or (name, None)
    if not NAME.fullmatch(plain):
        return f"{name!r} is not a name that a repository can have"
    reasons = []
    try:
        for repository in _candidates(plain):
            found = _fetch(repository, revision, kind)
            if isinstance(found, Path):
                return found
            reasons.append(f"{repository}: {found}")
    except _Unreachable as error:
        reasons.append(str(error))
    return f"{constants.ENDPOINT}: {'; '.join(reasons) or 'no repository of this name'}"


class _Unreachable(Exception):
    """The hub does not answer, so further requests would only take time."""


# ------------------------------------------------------------------ the cache


def _cached_repositories(root: Path, name: str) -> list[str]:
    """The repositories in the cache that `name` may mean, those of the most likely owners first."""
    wanted = name.lower()
    found = []
    for folder in sorted(root.glob("models--*")):
        repository = folder.name.removeprefix("models--").replace("--", "/")
        if wanted in (repository.lower(), repository.lower().rpartition("/")[2]):
            found.append(repository)
    likely = likely_repositories(name)
    return sorted(found, key=lambda repository: repository not in likely)


def _snapshot(root: Path, repository: str, revision: str) -> Path | None:
    """The cached folder of a revision: refs/<branch> holds a commit, snapshots/<commit> the files."""
    home = root / f"models--{repository.replace('/', '--')}"
    reference = home / "refs" / revision
    commit = reference.read_text(errors="replace").strip() if reference.is_file() else revision
    folder = home / "snapshots" / commit
    return folder if folder.is_dir() else None


def _cached_file(root: Path, repository: str, kind: str, revision: str) -> Path | str:
    """The GGUF file of that type in the cache, or why there is none."""
    owners = [each for each in _cached_repositories(root, repository) if each.lower() == repository.lower()]
    folder = _snapshot(root, owners[0], revision) if owners else None
    if folder is None:
        return f"{root} holds no revision {revision!r} of {repository}"
    found = chosen_file((str(each.relative_to(folder)) for each in folder.rglob("*.gguf")), kind)
    return folder / found if isinstance(found, str) else f"{repository}: {found}"


def _incomplete(folder: Path) -> str | None:
    """What is missing from a cached snapshot; None if it is complete."""
    if not (folder / "config.json").is_file():
        return f"holds no config.json{only_gguf(each.name for each in folder.rglob('*.gguf'))}"
    try:
        weight_files(folder)
        missing = [each for each in module_files(folder) if not (folder / each).is_file()]
    except ModelError as error:
        return str(error)
    return f"lacks {missing[0]}, which modules.json asks for" if missing else None


# ------------------------------------------------------------------ the hub


def _candidates(name: str) -> Iterator[str]:
    """The repositories that `name` may mean; the hub is searched only once the likely ones failed."""
    if "/" in name:
        yield name
        return
    likely = likely_repositories(name)
    yield from likely
    found = _search(name)
    if found and found not in likely:
        yield found


def _search(name: str) -> str | None:
    """Returns the most downloaded repository called `name`, of any owner."""
    try:
        models = _search_results(name)
    except Exception as error:
        raise _unreachable(error) from error
    named = [id for id in models if id.lower().rpartition("/")[2] == name.lower()]
    return named[0] if named else None


def _search_results(name: str) -> list[str]:
    """Search the hub. Not `HfApi.list_models`, which tries six times, for half a minute."""
    token = get_token()
    response = get_session().get(
        f"{constants.ENDPOINT}/api/models",
        params={"search": name, "sort": "downloads", "limit": 50},
        headers={"Authorization": f"Bearer {token}"} if token else {},
        timeout=ANSWER_SECONDS,
    )
    if response.status_code != OK:
        return []  # a mirror may have no search
    return [str(model["id"]) for model in response.json()]


def _fetch(repository: str, revision: str | None, kind: str | None) -> Path | str:
    """kind: the type of weights of the GGUF file that is wanted; None: the snapshot is."""
    try:
        info = HfApi().model_info(repository, revision=revision, timeout=ANSWER_SECONDS)
        files = [file.rfilename for file in info.siblings or ()]
        if kind is not None:
            return _fetch_file(repository, revision, files, kind)
        if "config.json" not in files:
            return f"holds no config.json{only_gguf(files)}"
        if not any(file.endswith(".safetensors") for file in files):
            return "holds no safetensors; pickle weights can run code when loaded and are refused"
        logger.info("downloading %s from %s", repository, constants.ENDPOINT)
        return _fetch_folder(repository, revision)
    except HfHubHTTPError as error:
        return _refusal(error, revision)
    except ModelError as error:
        return str(error)
    except Exception as error:  # the client's transport differs between its versions
        raise _unreachable(error) from error


def _fetch_folder(repository: str, revision: str | None) -> Path:
    """Raises ModelError where its ``modules.json`` cannot be read."""
    folder = Path(
        snapshot_download(repository, revision=revision, allow_patterns=WANTED, ignore_patterns=UNWANTED)
    )
    if files := module_files(folder):  # of the same commit, though the branch may have moved on
        snapshot_download(repository, revision=folder.name, allow_patterns=files)
    return folder


def _fetch_file(repository: str, revision: str | None, files: Sequence[str], kind: str) -> Path | str:
    found = chosen_file(files, kind)
    if not isinstance(found, str):
        return str(found)
    logger.info("downloading %s of %s from %s", found, repository, constants.ENDPOINT)
    return Path(hf_hub_download(repository, found, revision=revision))


def _refusal(error: HfHubHTTPError, revision: str | None) -> str:
    status = f"HTTP {error.response.status_code}"
    if isinstance(error, GatedRepoError):
        return f"{status}, gated: accept its terms on the hub, then set HF_TOKEN"
    if isinstance(error, RepositoryNotFoundError):
        return f"{status}, does not exist, or is private: then set HF_TOKEN"
    if isinstance(error, RevisionNotFoundError):
        return f"{status}, no revision {revision!r}"
    return status


def _unreachable(error: Exception) -> _Unreachable:
    kind = type(error)
    transport = isinstance(error, ConnectionError | TimeoutError) or kind.__module__.startswith("httpx")
    return _Unreachable(f"{'connection failed' if transport else 'failed'} ({kind.__name__}: {error})")
