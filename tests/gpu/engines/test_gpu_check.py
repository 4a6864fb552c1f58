"""The script for a machine with a GPU runs through without one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from card_tensors import Tensors
from serving import OVERFLOWS

from turnout.bench.gpu.table import table

SCRIPT = Path(__file__).parents[3] / "scripts" / "gpu_check.py"


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_it_asks_for_reduced_where_there_is_no_gpu() -> None:
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True)
    assert done.returncode == 2 and "--reduced" in done.stderr


@pytest.mark.slow
def test_reduced_it_runs_through(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, SCRIPT, "--reduced", "--json", report]
    for part in ("kernels", "greedy", "kernel_times"):
        command += ["--part", part]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    figures = json.loads(report.read_text())
    assert {"roofline", "kernels", "greedy", "kernel_times"} < figures.keys()
    kinds = {row["kernel"].split(",")[0].split()[0] for row in figures["kernel_times"]}
    assert kinds == {"decode", "prefill", "norm", "gate", "write", "product", "top-p", "experts"}


@pytest.mark.slow
@pytest.mark.filterwarnings(OVERFLOWS)
def test_what_it_asks_of_a_gpu(card: Tensors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clock, graphs, waits that it counts, an engine for a batch of one: none of it is done on a CPU."""
    monkeypatch.syspath_prepend(SCRIPT.parent)
    import gpu_check

    from turnout.bench.gpu import models as gpu_models

    monkeypatch.setattr(gpu_check, "GREEDY", {"overlapping": {"async_scheduling": True}})
    # A module's weights are exchanged when it is moved to the card, for they are tensors of another kind.
    monkeypatch.setattr(torch.__future__, "get_overwrite_module_params_on_conversion", lambda: True)
    device = torch.device("cuda")
    best = gpu_check.roofline(device, reduced=True)
    assert gpu_check.check_greedy(device, tmp_path)[0]["equal"]
    (name, shape, (setup, *_)), *_ = gpu_models.REDUCED
    small = replace(setup, loads=(gpu_models.Load(1, 8, 4),))
    monkeypatch.setattr(gpu_models, "REDUCED", [(name, shape, [small])])
    (row,) = gpu_check.models(device, tmp_path, True, 1, time.monotonic() + 60, best)
    assert row["host_ms"] > 0 and row["of_roofline"] > 0


def test_its_tables_have_a_row_for_each_kernel_and_model() -> None:
    kernel = {"kernel": "norm", "shape": "4 x 8", "seconds": 2e-6, "of_roofline": 0.5}
    kernel |= {"least": 1e-6, "most": 4e-6}
    run = {"model": "8b", "engine": "turnout", "batch": 1, "prompt": 8, "output": 4}
    figures = {
        "tokens_per_second": 1000.0,
        "least": 900.0,
        "most": 1100.0,
        "ttft_ms": 3.0,
        "tpot_ms": 1.0,
        "host_ms": 0.5,
        "gap_us": 40.0,
        "of_roofline": 0.75,
    }
    rooflines = [{"copy_bytes_per_second": 2e12, "bf16_flops": 6e14}]
    report = {
        "device": "A card",
        "torch": "2",
        "driver": "580",
        "triton": "3",
        "transformers": "5",
        "command": "python scripts/gpu_check.py",
        "roofline": rooflines,
        "kernel_times": [kernel],
    }
    assert "tokens/s" not in table(report)
    text = table({**report, "models": [{**run, **figures}, {**run, "left out": "time was up"}]})
    assert text.startswith("A card, driver 580, torch 2")
    assert text.count("| norm | 4 x 8 | 2 µs | 1 to 4 | 50% |") == 1
    assert (
        "| 8b | turnout | 1 | 8/4 | 1,000 | 900 to 1,100 | 3 ms | 1.00 ms | 0.50 ms | 40 µs | 75% |" in text
    )
    assert "| 8b | turnout | 1 | 8/4 | time was up |  |  |  |  |  |  |" in text
