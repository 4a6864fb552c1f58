"""Memory while a GGUF file is loaded: the file's blocks, and those of a tensor beside them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

MEASURE = """
import sys, torch
from pathlib import Path
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.registry.registry import Registry
from turnout.kernels import choose_kernels
from turnout.runner.checkpoint import open_checkpoint
from turnout.runner.weights import load_weights

def status(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key + ":"))

registry, cpu = Registry.load(), torch.device("cpu")
context = ComputeContext(cpu, torch.float32, choose_kernels(sys.argv[2], cpu, torch.float32).kernels)
checkpoint = open_checkpoint(registry, sys.argv[1])
Path("/proc/self/clear_refs").write_text("5")  # forget the peak of importing
before = status("VmRSS")
module = load_weights(registry, checkpoint, "none", context, progress=False)
print(status("VmHWM") - before, status("RssAnon"))
"""


@pytest.mark.slow  # a file of 150 MB, and processes of their own
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is read from Linux's /proc")
@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_K", "Q6_K"])
def test_peak_memory_is_the_file_and_a_tensor(gguf_file: Callable[..., Path], kind: str) -> None:
    """Holding the blocks twice, or numbers of 16 bits, would take twice the file and more."""
    file = gguf_file(
        kind, "qwen2", hidden=1024, layers=12, heads=16, kv_heads=4, intermediate=2816, vocab=8192
    )
    size = file.stat().st_size
    assert size > {"Q8_0": 140e6, "Q6_K": 105e6}.get(kind, 75e6)
    for kernels in ("native", "torch"):
        command = [sys.executable, "-c", MEASURE, str(file), kernels]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        peak, held = map(int, run.stdout.split())
        assert size * 0.9 < held, "the weights are in this process's own memory"
        assert peak <= size + 60e6
