"""What starts fast stays fast, and what is a package is shipped."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEAVY = {"torch", "transformers", "uvicorn", "starlette", "zmq", "scipy"}
NOT_SHIPPED = {"tests", "docs", "examples", "scripts", "build", "dist"}


def loaded_by(code: str) -> set[str]:
    """Top-level modules that are loaded once `code` has run in a fresh interpreter."""
    report = f"{code}\nimport sys; print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stderr.split()}


@pytest.mark.parametrize(
    "code",
    [
        "import turnout",
        "import turnout.core.registry.registry, turnout.core.engine.engine, turnout.plugins.builtin",
        "from turnout.cli.main import cli; cli.main(['--help'], standalone_mode=False)",
        "from turnout.cli.main import cli; cli.main(['serve', '--help'], standalone_mode=False)",
        "from turnout.cli.main import cli; cli.main(['compare', '--help'], standalone_mode=False)",
        "from turnout.cli.main import cli; cli.main(['plugins', '--json'], standalone_mode=False)",
        "from turnout.cli.main import cli; cli.main(['bench', 'serve', '--help'], standalone_mode=False)",
        "from turnout.cli.main import cli; cli.main(['bench', 'latency', '--help'], standalone_mode=False)",
        "import turnout.plugins.logits_processors.structured.compile_process",
    ],
)
def test_nothing_heavy_is_imported(code: str) -> None:
    assert not loaded_by(code) & HEAVY


def test_a_server_without_an_ab_test_imports_no_scipy() -> None:
    assert "scipy" not in loaded_by("import turnout.cli.ab, turnout.server.serve, turnout.llm")


def test_every_package_is_listed_for_packaging() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    assert sorted(listed) == sorted(packages())


def packages() -> list[str]:
    found = []
    for folder, inside, files in os.walk(ROOT):
        inside[:] = [name for name in inside if not _skipped(name)]
        if "__init__.py" in files:
            found.append(".".join(["turnout", *Path(folder).relative_to(ROOT).parts]))
    return found


def _skipped(part: str) -> bool:
    return part in NOT_SHIPPED or part.startswith((".", "_")) or part.endswith(".egg-info")
