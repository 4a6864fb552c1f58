"""Writes weights in MXFP4."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

__all__ = ["encode_experts", "encoded"]

SIZES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def encoded(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Returns blocks, uint8 […, inputs / 32, 16], and scales, uint8 […, inputs / 32]. weight: […, inputs]."""
    groups = weight.float().unflatten(-1, (-1, 32))
    exponent = groups.abs().amax(-1).clamp(min=2.0**-100).log2().floor().int() - 2
    scaled = groups * 2.0 ** -exponent[..., None].double()
    codes = (scaled.abs()[..., None] - SIZES).abs().argmin(-1) | (scaled < 0).int() << 3
    low, high = codes[..., 0::2], codes[..., 1::2]
    return (low | high << 4).to(torch.uint8), (exponent + 127).to(torch.uint8)


def encode_experts(folder: Path) -> None:
    """Encodes the experts of a gpt-oss checkpoint in place, as the published ones are."""
    file, tensors = folder / "model.safetensors", {}
    for key, value in load_file(file).items():
        if key.endswith(("gate_up_proj", "down_proj")):
            tensors[f"{key}_blocks"], tensors[f"{key}_scales"] = encoded(value.mT)
        else:
            tensors[key] = value
    save_file(tensors, file, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    quantization = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": quantization}))
