"""The packages in examples/, installed and tested as a third party's would be."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from installed_packages import ROOT, lay_out, run, turnout

EXAMPLES = sorted(path.parent for path in (ROOT / "examples").glob("*/pyproject.toml"))
LONG = ("turnout-streaming-kv",)
PUBLIC = re.compile(r"turnout(\.(core|testing)\b.*|\.plugins\.evictions\.lru)?|turnout_\w+.*")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    site = tmp_path_factory.mktemp("site")
    for example in EXAMPLES:
        lay_out(example, site)
    return site


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 2


@pytest.mark.parametrize(
    "example",
    [pytest.param(example, marks=[pytest.mark.slow] if example.name in LONG else []) for example in EXAMPLES],
    ids=lambda example: example.name,
)
@pytest.mark.parametrize("trials", ["4", pytest.param("12", marks=pytest.mark.slow)])
def test_its_own_tests_pass(trials: str, example: Path, site: Path, tmp_path: Path) -> None:
    quick = ["-o", "addopts=", "-p", "turnout.testing.pytest_plugin", "--turnout-trials", trials]
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", *quick, str(example / "tests")]
    done = run(site, *command, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_it_builds_on_what_is_promised_alone(example: Path) -> None:
    for file in example.rglob("*.py"):
        names = re.findall(r"^\s*(?:from|import) (turnout\S*)", file.read_text(), re.MULTILINE)
        assert names and all(PUBLIC.fullmatch(name) for name in names), f"{file}: {names}"


def test_they_are_listed(site: Path) -> None:
    listed = json.loads(turnout(site, "plugins", "--json", cwd=site).stdout)
    found = {entry["distribution"]: entry["state"] for entry in listed}
    assert all(found[example.name] == "ok" for example in EXAMPLES)
