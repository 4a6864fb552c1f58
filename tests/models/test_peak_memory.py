"""Whatever runs a model: loading takes its final weights, one tensor and 200 MB at most."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from turnout.models.random.shapes import Shape, config_of

MEASURE = """
import sys, torch
from pathlib import Path
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.registry.registry import Registry
from turnout.kernels import choose_kernels
from turnout.models.checkpoints.checkpoint import read_config
from turnout.models.checkpoints.loading import load_model
from turnout.models.meta_model import meta_model
from turnout.runner.memory.budget import weight_bytes

def status(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key + ":"))

folder, name, quantization, cpu = Path(sys.argv[1]), *sys.argv[2:], torch.device("cpu")
registry = Registry.load()
config = {**read_config(folder), "auto_map": {}}  # nothing is remembered of it
family = registry.create("model", name)
quantizer = None if quantization == "none" else registry.create("quantization", quantization)
kernels = choose_kernels("native", cpu, torch.float32).kernels
spec = family.spec(config)
meta_model(family, spec)  # so that what the adapter imports is there
Path("/proc/self/clear_refs").write_text("5")  # forget the peak of importing
before = status("VmRSS")
module = load_model(folder, family, spec, ComputeContext(cpu, torch.float32, kernels), quantizer=quantizer)
print(status("VmHWM") - before, weight_bytes(module))
"""
DENSE = Shape(hidden=1024, layers=5, heads=16, kv_heads=4, intermediate=2816, vocab=16_384, tied=True)
MIXTURE = Shape(*(1024, 4, 16, 4, 2816, 16_384), experts=16, top=4, expert_size=512)


@pytest.mark.slow  # checkpoints of 150 MB, and processes of their own
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is read from Linux's /proc")
@pytest.mark.parametrize("quantization", ["none", "int8"])
@pytest.mark.parametrize(
    ("family", "kind", "shape"),
    [
        ("qwen2", "qwen2", DENSE),
        ("qwen3-moe", "qwen3_moe", MIXTURE),
        ("transformers", "olmo2", DENSE),
        ("transformers", "qwen3_moe", MIXTURE),
    ],
)
def test_loading_takes_the_weights_and_one_tensor(
    family: str, kind: str, shape: Shape, quantization: str, checkpoint
) -> None:
    folder = checkpoint(config_of(shape, kind), dtype="bfloat16")
    command = [sys.executable, "-c", MEASURE, folder, family, quantization]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    peak, weights = map(int, run.stdout.split())
    stacked = 3 * shape.experts * shape.expert_size * shape.hidden
    largest = 4 * max(shape.vocab * shape.hidden, stacked)
    assert weights > 70e6
    assert peak <= weights + largest + 200e6
