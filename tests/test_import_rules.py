"""Arrows between the rooms point one way: the contracts in pyproject.toml hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from importlinter.cli import lint_imports, logging_config

ROOT = Path(__file__).parent.parent


def test_import_contracts_hold(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    # It would disable every logger there is, and later tests look at some.
    monkeypatch.setattr(logging_config, "dictConfig", lambda config: None)
    status = lint_imports(config_filename=str(ROOT / "pyproject.toml"), cache_dir=None)
    assert status == 0, capsys.readouterr().out


def test_core_names_no_other_room() -> None:
    """Not even for typing, which the contracts leave out."""
    for file in (ROOT / "core").rglob("*.py"):
        rooms = set(re.findall(r"^\s*(?:from|import) turnout\.(\w+)", file.read_text(encoding="utf-8"), re.M))
        assert rooms <= {"core"}, f"{file.relative_to(ROOT)} imports {sorted(rooms - {'core'})}"
