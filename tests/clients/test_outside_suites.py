"""Suites and loops of frameworks that nobody here wrote, each in an environment of its own.

They need PyPI the first time, and take minutes.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from assistant import NAME, AssistantServer
from environments import python_of

HERE = Path(__file__).parent
SUITES = sorted(file.parent.name for file in HERE.glob("suites/*/requirements.txt"))
OPTIONS = (
    *("-q", "-rs", "-c", "/dev/null", "--rootdir", ".", "--confcutdir", ".", "-p", "no:cacheprovider"),
    *("-o", "asyncio_mode=auto", "-W", "ignore", "--timeout", "120"),
    # langchain keeps clients for all its tests.
    *("-o", "asyncio_default_test_loop_scope=session", "-o", "asyncio_default_fixture_loop_scope=session"),
)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("suite", SUITES)
def test_a_suite(server: AssistantServer, suite: str) -> None:
    folder = HERE / "suites" / suite
    told = {"TURNOUT_URL": server.url, "TURNOUT_MODEL": NAME, "TURNOUT_SCRIPT": str(server.script.file)}
    kept = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    ran = subprocess.run(
        [python_of(folder / "requirements.txt"), "-m", "pytest", *OPTIONS, *folder.glob("suite_*.py")],
        cwd=folder,
        env={**kept, **told, "PYTHONPATH": str(HERE)},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout[-8000:]
    passed = re.search(r"(\d+) passed", ran.stdout)
    assert passed is not None and int(passed[1]) >= 15, ran.stdout[-2000:]
