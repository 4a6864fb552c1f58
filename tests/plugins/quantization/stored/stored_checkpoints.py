"""Checkpoints as quantizers of others write them: by the names and the layers that they are stored with."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from family_checkpoints import write_checkpoint
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from writers import Written

from turnout.core.interfaces.compute import ComputeContext
from turnout.core.registry.registry import Registry
from turnout.runner.checkpoint import open_checkpoint
from turnout.runner.weights import load_weights

UNQUANTIZED = ("embed", "wte", "wpe", "lm_head", "norm", "mlp.gate.", "block_sparse_moe.gate.", "router")
"""Parts of names of matrices that stay as they are."""
Writer = Callable[[Tensor], Written]


def quantize_layers(
    name: str, folder: Path, config: Mapping[str, Any], writer_of: Callable[[str], Writer], **changes: object
) -> None:
    """Writes the model of that name with its layers quantized; config: what its config.json says of them."""
    write_checkpoint(name, folder, **changes)
    stored: dict[str, Tensor] = {}
    for key, value in load_file(folder / "model.safetensors").items():
        layer = key.removesuffix(".weight")
        if layer == key or value.dim() != 2 or any(part in key for part in UNQUANTIZED):
            stored[key] = value
        else:
            written = writer_of(layer)(value)
            stored |= {f"{layer}.{part}": each.contiguous() for part, each in written.tensors.items()}
    save_file(stored, folder / "model.safetensors")
    read = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**read, "quantization_config": config}))


def load(folder: Path, implementation: str = "auto", quantization: str = "none") -> nn.Module:
    """Loads it as a server does."""
    registry, context = Registry.load(), ComputeContext(torch.device("cpu"), torch.float32)
    checkpoint = open_checkpoint(registry, str(folder), implementation=implementation)
    return load_weights(registry, checkpoint, quantization, context, progress=False)
