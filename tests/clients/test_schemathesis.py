"""schemathesis over ``/openapi.json``: no 5xx, and no status, media type or body that is not described."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_server import serving

REQUIREMENTS = Path(__file__).parent / "schemathesis.txt"
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


@pytest.fixture(scope="module")
def schemathesis(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, in an environment of its own; `TURNOUT_SCHEMATHESIS` names one that exists."""
    if given := os.environ.get("TURNOUT_SCHEMATHESIS"):
        return Path(given)
    folder = tmp_path_factory.mktemp("schemathesis")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([folder / "bin" / "pip", "install", "-q", "-r", REQUIREMENTS], check=True)
    return folder / "bin" / "schemathesis"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_no_request_gets_what_is_not_described(schemathesis: Path, tmp_path: Path) -> None:
    stores = ("--response-store", str(tmp_path / "responses.db"), "--batch-dir", str(tmp_path / "batches"))
    with serving("--max-model-len", "256", "--pooling", "last", *stores) as server:
        found = subprocess.run(
            [
                schemathesis,
                "run",
                f"{server.url}/openapi.json",
                *("--checks", CHECKS, "--max-examples", "20", "--request-timeout", "120"),
                *("--phases", "coverage,fuzzing", "--seed", "1", "--no-color"),
            ],
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
        assert found.returncode == 0, found.stdout[found.stdout.find("FAILURES") :][:8000]
        assert "0 passed" not in found.stdout
        server.check()
