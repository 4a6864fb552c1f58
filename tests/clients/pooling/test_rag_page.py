"""The programs of docs/how-to/rag.md, run as they stand there, by the clients that they are for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from environments import python_of
from three_models import ThreeModels

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "how-to" / "rag.md"
LLAMA_INDEX = Path(__file__).parent / "suites" / "llama_index" / "requirements.txt"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeModels]:
    server = ThreeModels(tmp_path_factory.mktemp("three"))
    try:
        yield server
        server.check()
    finally:
        server.end()


def ran(program: str, python: Path, three: ThreeModels) -> str:
    """What a program of the page prints, in a clone."""
    assert "http://127.0.0.1:8000" in program
    told = program.replace("http://127.0.0.1:8000", three.url)
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [python, "-c", told], cwd=ROOT, env=kept, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def programs() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def test_openais_client_finds_ranks_and_answers(three: ThreeModels) -> None:
    ours, _ = programs()
    *passages, answer = ran(ours, Path(sys.executable), three).split("\n", 5)
    assert len(passages) == 5 and all(passage.startswith("docs/") for passage in passages)
    assert answer.strip()


def test_llama_index_does_so_too(three: ThreeModels) -> None:
    _, theirs = programs()
    assert ran(theirs, python_of(LLAMA_INDEX), three).strip()


def test_the_small_models_are_written_by_the_command_of_the_page(tmp_path: Path) -> None:
    (command,) = re.findall(r"^python (examples/\S+) (\S+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    subprocess.run([sys.executable, command[0], tmp_path / "small"], cwd=ROOT, check=True)
    assert {each.name for each in (tmp_path / "small").iterdir()} == {"embed", "rerank"}
