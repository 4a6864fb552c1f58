"""OWNER/NAME:TYPE is a GGUF file of a repository, in the cache or on the hub."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hub_server import COMMIT, Hub, running

from turnout.models.gguf import folder as folders
from turnout.models.hub.gguf_names import chosen_file, split_name
from turnout.models.hub.resolve import resolve_model

RESOLVE = """
import sys
from turnout.core.errors import ModelError
from turnout.models.hub.resolve import resolve_model
for name in sys.argv[1:]:
    try:
        print((resolve_model(name) / "model.gguf").resolve())
    except ModelError as error:
        print(" ".join(str(error).split()))
"""


def resolved(home: Path, *names: str, **variables: str) -> list[str]:
    """What each name stands for, or why it stands for nothing, in a process with the cache in `home`."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    run = subprocess.run(
        [sys.executable, "-c", RESOLVE, *names],
        capture_output=True,
        text=True,
        env={**inherited, "HF_HOME": str(home), **variables},
        timeout=60,
        check=True,
    )
    return run.stdout.splitlines()


def test_names_in_the_cache(gguf_file: Callable[..., Path], tmp_path: Path) -> None:
    kept = tmp_path / "hf" / "hub" / "models--acme--anvil-GGUF"
    (kept / "snapshots" / COMMIT).mkdir(parents=True)
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text(COMMIT)
    stored = kept / "snapshots" / COMMIT / "anvil-Q8_0.gguf"
    gguf_file("Q8_0").rename(stored)
    found, other, untyped, unknown = resolved(
        tmp_path / "hf",
        *("acme/anvil-GGUF:q8_0", "acme/anvil-GGUF:Q4_K_M", "acme/anvil-GGUF", "acme/saw:Q8_0"),
        HF_HUB_OFFLINE="1",
    )
    assert found == str(stored)
    assert "no GGUF file of the type Q4_K_M; there are anvil-Q8_0.gguf" in other
    assert "holds no config.json, only GGUF files: name one by its type, as OWNER/NAME:Q4_K_M" in untyped
    assert "holds no revision 'main' of acme/saw" in unknown and "HF_HUB_OFFLINE is set" in unknown


def test_names_on_the_hub(gguf_file: Callable[..., Path], tmp_path: Path) -> None:
    """Only the file is fetched."""
    with running(Hub()) as hub:
        blobs = {"anvil-Q8_0.gguf": gguf_file("Q8_0").read_bytes(), "anvil-Q4_0.gguf": b"", "README.md": b""}
        hub.repositories["acme/anvil"] = blobs
        found, lost = resolved(
            tmp_path / "hf", "acme/anvil:Q8_0", "acme/anvil:IQ2_M", HF_ENDPOINT=hub.endpoint
        )
    assert Path(found).read_bytes() == blobs["anvil-Q8_0.gguf"]
    assert hub.downloads == {"anvil-Q8_0.gguf"}
    assert "no GGUF file of the type IQ2_M; there are anvil-Q4_0.gguf, anvil-Q8_0.gguf" in lost


@pytest.mark.parametrize(
    ("files", "found"),
    [
        (["m-Q4_K_M.gguf", "m-Q4_K_S.gguf"], "m-Q4_K_M.gguf"),
        (["Q4_K_M/m.gguf", "mmproj-Q4_K_M.gguf"], "Q4_K_M/m.gguf"),
        (["m-q4_k_m.gguf", "m-iq4_k_m.gguf"], "m-q4_k_m.gguf"),
        (["m-Q4_K_M-00001-of-00002.gguf", "m-Q4_K_M-00002-of-00002.gguf"], "is one of several; join them"),
        (["a-Q4_K_M.gguf", "b-Q4_K_M.gguf"], "fits a-Q4_K_M.gguf, b-Q4_K_M.gguf"),
        (["model.safetensors"], "holds no GGUF file"),
    ],
)
def test_a_type_is_a_word_of_one_file(files: list[str], found: str) -> None:
    assert found in str(chosen_file(files, "Q4_K_M"))


def test_other_names_have_no_type() -> None:
    assert split_name("acme/anvil:Q8_0") == ("acme/anvil", "Q8_0")
    assert [split_name(name) for name in ("acme/anvil", "anvil:Q8_0", "a/b:c:d", "C:/x")] == [None] * 4


def test_few_folders_are_kept(gguf_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were used last."""
    monkeypatch.setattr(folders, "KEPT", 2)
    file, made = gguf_file(), []
    for copy in ("a", "b", "c"):
        (file.parent / f"{copy}.gguf").write_bytes(file.read_bytes())
        made.append(resolve_model(str(file.parent / f"{copy}.gguf")))
        os.utime(made[-1], (len(made), len(made)))
        if copy == "b":
            assert resolve_model(str(file.parent / "a.gguf")) == made[0]  # used again
    assert [folder.exists() for folder in made] == [True, False, True]
