"""The fingerprint of an engine: the same for two engines that give the same tokens for the same requests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import torch

from turnout.config import EngineConfig
from turnout.core.version import own_version
from turnout.kernels import cpu_kernels
from turnout.models.checkpoints.checkpoint import weight_files
from turnout.runner.checkpoint import Checkpoint
from turnout.runner.compute_setup import ComputeSetup

__all__ = ["checkpoint_digest", "fingerprint"]

SAMPLE = 64 * 2**10
"""Bytes that are read at each end of a weight file: enough to tell two finetunes apart, read in no time."""


def fingerprint(config: EngineConfig, checkpoint: Checkpoint, setup: ComputeSetup) -> str:
    """Returns ``turnout-VERSION-HASH`` of what decides tokens: weights, dtype, device, kernels, policies,
    the model's configuration with what overrides it, and how ranks divide its sums.

    What only decides when tokens come is left out, as the scheduler.
    """
    digest = hashlib.sha256()
    for part in (*_computing(config, setup), *_weights(checkpoint.folder)):
        digest.update(len(part).to_bytes(8) + part)
    return f"turnout-{own_version()}-{digest.hexdigest()[:12]}"


def checkpoint_digest(checkpoint: Checkpoint) -> str:
    """The same for two checkpoints of the same configuration and weights, wherever they lie."""
    digest = hashlib.sha256()
    for part in _weights(checkpoint.folder):
        digest.update(len(part).to_bytes(8) + part)
    return digest.hexdigest()[:12]


def _computing(config: EngineConfig, setup: ComputeSetup) -> Iterator[bytes]:
    device = setup.device
    cuda = device.type == "cuda"
    machine = torch.cuda.get_device_name(device) if cuda else torch.backends.cpu.get_cpu_capability()
    native = cpu_kernels(setup.context.kernels)
    kernels = type(setup.context.kernels).__name__ if native is None else native.variant
    chosen = config.model_impl, config.quantization, config.kv, config.kv_cache_dtype, config.decoding
    computed = device.type, machine, str(setup.dtype), kernels, torch.__version__
    for part in (*computed, *chosen, *config.logits_processor, *_division(config)):
        yield str(part).encode()
    if config.hf_overrides is not None:
        yield json.dumps(json.loads(config.hf_overrides), sort_keys=True).encode()


def _division(config: EngineConfig) -> Iterator[str]:
    """How ranks divide sums, whose order decides bits. The stages of a pipeline divide none."""
    if (parts := config.tensor_parallel_size) > 1:
        yield f"{parts} ranks" + ", whole experts" * config.enable_expert_parallel


def _weights(folder: Path) -> Iterator[bytes]:
    """The configuration, and of each weight file its name, its size and its two ends."""
    yield (folder / "config.json").read_bytes()
    for path in weight_files(folder):
        size = path.stat().st_size
        yield f"{path.name} {size}".encode()
        with path.open("rb") as file:
            yield file.read(SAMPLE)
            file.seek(max(0, size - SAMPLE))
            yield file.read(SAMPLE)
