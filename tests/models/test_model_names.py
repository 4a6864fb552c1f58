"""A name becomes a folder: local, embedded, cached, or downloaded from a hub."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hub_server import COMMIT, Hub, running

from turnout.core.errors import ModelError
from turnout.models.hub import resolve
from turnout.models.hub.short_names import likely_repositories

FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
OTHERS = ("README.md", "pytorch_model.bin", "original/params.json", "onnx/model.safetensors")

RESOLVE = """
import sys
from turnout.core.errors import ModelError
from turnout.models.hub.resolve import resolve_model
try:
    print(resolve_model(sys.argv[1], revision=sys.argv[2] if len(sys.argv) > 2 else None))
except ModelError as error:
    sys.exit(f"ModelError: {error}")
"""


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running(Hub()) as hub:
        yield hub


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "hf"


@pytest.fixture
def ask(hub: Hub, home: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """ask(name, revision, VARIABLE=…): resolve in a new process, as the hub's client reads its
    variables when it is imported."""

    def run(*args: str, **variables: str) -> subprocess.CompletedProcess[str]:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
        environment = {**inherited, "HF_ENDPOINT": hub.endpoint, "HF_HOME": str(home), **variables}
        command = [sys.executable, "-c", RESOLVE, *args]
        return subprocess.run(
            command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=60
        )

    return run


def repository(*files: str) -> dict[str, bytes]:
    return {name: f"contents of {name}".encode() for name in files or FILES + OTHERS}


def snapshot(home: Path, owner: str, name: str) -> Path:
    return home / "hub" / f"models--{owner}--{name}" / "snapshots" / COMMIT


# ------------------------------------------------------------------ on this machine


def test_a_local_folder_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "turnout-tiny").mkdir()
    (tmp_path / "turnout-tiny" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert resolve.resolve_model("turnout-tiny") == Path("turnout-tiny")


def test_embedded_models_lie_in_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("turnout-tiny", "turnout-tiny-draft"):
        (tmp_path / "tiny" / name).mkdir(parents=True)
        (tmp_path / "tiny" / name / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(resolve, "EMBEDDED_FOLDER", tmp_path / "tiny")
    assert resolve.resolve_model("turnout-tiny") == tmp_path / "tiny" / "turnout-tiny"
    assert resolve.resolve_model("turnout-tiny-draft") == tmp_path / "tiny" / "turnout-tiny-draft"


def test_a_home_folder_may_be_written_with_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    assert resolve.resolve_model("~") == tmp_path


@pytest.mark.parametrize(
    ("name", "repositories"),
    [
        ("Qwen2.5-0.5B", ["Qwen/Qwen2.5-0.5B"]),
        ("Llama-3.2-1B", ["meta-llama/Llama-3.2-1B"]),
        ("TinyLlama_v1.1", ["TinyLlama/TinyLlama_v1.1"]),
        ("SmolLM2-135M", ["HuggingFaceTB/SmolLM2-135M"]),
        ("gpt2", []),
    ],
)
def test_names_without_owner_have_likely_ones(name: str, repositories: list[str]) -> None:
    assert likely_repositories(name) == repositories


# ------------------------------------------------------------------ from the hub


def test_a_download_fetches_what_serving_needs_and_nothing_else(hub: Hub, ask, home: Path) -> None:
    hub.repositories["acme/anvil"] = repository()
    run = ask("acme/anvil")
    folder = Path(run.stdout.strip())
    assert folder == snapshot(home, "acme", "anvil"), run.stderr
    assert {path.name for path in folder.iterdir()} == set(FILES) == hub.downloads
    assert (folder / "config.json").read_text() == "contents of config.json"
    assert "%" in run.stderr, "a progress bar"


def test_what_was_downloaded_is_found_without_asking_again(hub: Hub, ask) -> None:
    hub.repositories["acme/anvil"] = repository()
    first = ask("acme/anvil")
    hub.requests.clear()
    for name in ("acme/anvil", "anvil", "ANVIL"):
        assert ask(name).stdout == first.stdout != ""
    assert ask("anvil", HF_HUB_OFFLINE="1").stdout == first.stdout
    assert hub.requests == []


def test_an_interrupted_download_is_taken_up_again(hub: Hub, ask, home: Path) -> None:
    hub.repositories["acme/anvil"] = repository()
    ask("acme/anvil")
    weights = snapshot(home, "acme", "anvil") / "model.safetensors"
    weights.unlink()
    assert "holds no weights" in ask("acme/anvil", HF_HUB_OFFLINE="1").stderr
    ask("acme/anvil")
    assert weights.exists()


MODULES = json.dumps(
    [
        {"path": path, "type": f"sentence_transformers.models.{path.rpartition('_')[2] or 'Transformer'}"}
        for path in ("", "1_Pooling", "2_Dense", "3_Normalize")
    ]
).encode()


def test_an_embedders_modules_are_downloaded_with_it(hub: Hub, ask, home: Path) -> None:
    """They lie in folders, and were left out: no embedder of the hub could be served."""
    parts = "1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors"
    hub.repositories["acme/anvil"] = {**repository(*FILES, *OTHERS, *parts), "modules.json": MODULES}
    run = ask("acme/anvil")
    folder = snapshot(home, "acme", "anvil")
    assert Path(run.stdout.strip()) == folder, run.stderr
    found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert found == {*FILES, *parts, "modules.json"}
    (folder / parts[0]).unlink()
    assert f"lacks {parts[0]}" in ask("acme/anvil", HF_HUB_OFFLINE="1").stderr
    assert Path(ask("acme/anvil").stdout.strip()) == folder and (folder / parts[0]).is_file()


@pytest.mark.parametrize("modules", [b"{", b'[{"path": "/etc", "type": "models.Pooling"}]'])
def test_an_embedders_odd_modules_end_in_an_error_or_are_left_out(hub: Hub, ask, modules: bytes) -> None:
    hub.repositories["acme/anvil"] = {**repository(*FILES), "modules.json": modules}
    for _ in range(2):
        assert "Traceback" not in ask("acme/anvil").stderr


def test_a_short_name_finds_its_likely_owner(hub: Hub, ask, home: Path) -> None:
    hub.repositories["someone/Qwen2.5-0.5B"] = repository()
    hub.repositories["Qwen/Qwen2.5-0.5B"] = repository()
    assert Path(ask("Qwen2.5-0.5B").stdout.strip()) == snapshot(home, "Qwen", "Qwen2.5-0.5B")


def test_an_unknown_short_name_is_searched_and_must_match_whole(hub: Hub, ask, home: Path) -> None:
    """The hub lists the most downloaded first."""
    hub.repositories["other/anvil-large"] = repository()
    hub.repositories["acme/Anvil"] = repository()
    hub.repositories["copycat/anvil"] = repository()
    assert Path(ask("anvil").stdout.strip()) == snapshot(home, "acme", "Anvil")


def test_a_revision_is_asked_for(hub: Hub, ask, home: Path) -> None:
    hub.repositories["acme/anvil"] = repository()
    assert Path(ask("acme/anvil", COMMIT).stdout.strip()) == snapshot(home, "acme", "anvil")
    assert "no revision 'v9'" in ask("acme/anvil", "v9").stderr


def test_gated_models_need_a_token(hub: Hub, ask) -> None:
    hub.repositories["acme/anvil"] = repository()
    hub.gated.add("acme/anvil")
    assert (
        "acme/anvil: HTTP 401, gated: accept its terms on the hub, then set HF_TOKEN" in ask("anvil").stderr
    )
    assert ask("anvil", HF_TOKEN=hub.token).stdout


# ------------------------------------------------------------------ what cannot be found


def test_the_error_lists_every_place(hub: Hub, ask, home: Path, tmp_path: Path) -> None:
    error = ask("Qwen2.5-9000B").stderr
    assert error.startswith("ModelError: cannot find the model 'Qwen2.5-9000B'; tried\n")
    assert f"local folder: {tmp_path / 'Qwen2.5-9000B'} does not exist" in error
    assert "embedded models: only turnout-tiny and turnout-tiny-draft" in error
    assert f"Hugging Face cache: {home / 'hub'} holds no repository of this name" in error
    assert f"hub: {hub.endpoint}: Qwen/Qwen2.5-9000B: HTTP 404, does not exist, or is private" in error
    assert "HF_ENDPOINT" in error


def test_a_name_too_long_for_a_file_is_found_nowhere(ask) -> None:
    """`pathlib` raises OSError where it answers False for other names."""
    error = ask("x" * 5_000, HF_HUB_OFFLINE="1").stderr
    assert error.startswith("ModelError: cannot find the model 'xxx") and "HF_ENDPOINT" in error


def test_a_place_that_cannot_be_read_is_one_of_those_that_were_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of another user; it ended with a traceback."""

    def refused(name: str, revision: str | None) -> Path:
        raise PermissionError(errno.EACCES, "Permission denied", "/root/config.json")

    monkeypatch.setattr(resolve, "PLACES", dict.fromkeys(resolve.PLACES, refused))
    with pytest.raises(ModelError, match=r"local folder: .*/root/config\.json.* cannot be used: Permission"):
        resolve.resolve_model("anvil")


@pytest.mark.parametrize("content", [b"\xff\xfe", b"x" * 400])
def test_a_damaged_reference_of_the_cache_is_told(ask, home: Path, content: bytes) -> None:
    reference = home / "hub" / "models--acme--anvil" / "refs" / "main"
    reference.parent.mkdir(parents=True)
    reference.write_bytes(content)
    for args in (("acme/anvil",), ("acme/anvil", "r" * 300)):
        error = ask(*args, HF_HUB_OFFLINE="1").stderr
        assert error.startswith("ModelError: cannot find the model 'acme/anvil'; tried"), error


def test_pickle_only_repositories_are_not_downloaded(hub: Hub, ask) -> None:
    hub.repositories["acme/anvil"] = repository("config.json", "pytorch_model.bin")
    assert "pickle weights can run code" in ask("acme/anvil").stderr
    assert hub.downloads == set()


def test_offline_says_so(hub: Hub, ask) -> None:
    hub.repositories["acme/anvil"] = repository()
    assert "was not asked, HF_HUB_OFFLINE is set" in ask("acme/anvil", HF_HUB_OFFLINE="1").stderr
    assert hub.requests == []


@pytest.mark.parametrize("name", ["Qwen2.5-0.5B", "nobodys-model"])
def test_a_hub_out_of_reach_is_reported_quickly(name: str, ask) -> None:
    """Where no owner was likely, the search was tried six times, with a line for each."""
    start = time.monotonic()
    error = ask(name, HF_ENDPOINT="http://127.0.0.1:9").stderr
    assert "hub: http://127.0.0.1:9: connection failed (ConnectError" in error
    assert "Retrying" not in error
    assert time.monotonic() - start < 15  # most of it is Python starting up


def test_paths_are_never_asked_of_the_hub(hub: Hub, ask) -> None:
    assert "not a name that a repository can have" in ask("./no/such/folder").stderr
    assert hub.requests == []


@pytest.mark.parametrize("kind", ["empty folder", "file"])
def test_a_local_path_that_is_no_model_says_why(kind: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(resolve, "PLACES", {"local folder": resolve.PLACES["local folder"]})
    path = tmp_path / "model"
    path.mkdir() if kind == "empty folder" else path.write_text("")
    with pytest.raises(ModelError, match=r"holds no config\.json|is a file"):
        resolve.resolve_model(str(path))


def test_a_home_folder_that_is_not_known_is_told() -> None:
    """pathlib's RuntimeError was a traceback; so was ``~/model`` of a user without a name and HOME."""
    with pytest.raises(ModelError, match="no home folder is known for ~nobody-of-this-name"):
        resolve.resolve_model("~nobody-of-this-name/model")
