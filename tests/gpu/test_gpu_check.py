"""The script for a machine with a GPU runs through without one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parents[2] / "scripts" / "gpu_check.py"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_it_asks_for_reduced_where_there_is_no_gpu() -> None:
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True)
    assert done.returncode == 2 and "--reduced" in done.stderr


def test_reduced_it_runs_through(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, SCRIPT, "--reduced", "--no-models", "--json", report]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    figures = json.loads(report.read_text())
    assert {"roofline", "kernels", "greedy", "kernel_times"} < figures.keys()
    assert {row["kernel"] for row in figures["kernel_times"]} == {"decode", "prefill"}
