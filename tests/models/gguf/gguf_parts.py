"""Tensors as llama.cpp's files have them, and back: experts one by one, and keys apart from values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

__all__ = ["put_together", "taken_apart"]

Tensors = dict[str, Tensor]


def taken_apart(config: Mapping[str, Any], tensors: Mapping[str, Tensor], *, latent: bool) -> Tensors:
    """latent: whether what expands keys and values is two tensors."""
    found: Tensors = {}
    for name, value in tensors.items():
        layer, expert, part = name.partition(".mlp.experts.")
        if config["model_type"] == "gpt_oss" and expert:
            found |= {f"{layer}{expert}{rest}": each for rest, each in _experts(part, value).items()}
        elif latent and name.endswith("kv_b_proj.weight"):
            keys, values = torch.split(_by_head(config, value), _widths(config), dim=1)
            found[name.replace("kv_b_proj", "k_b_proj")] = keys.mT.contiguous()
            found[name.replace("kv_b_proj", "v_b_proj")] = values.contiguous()
        else:
            found[name] = value
    return found


def put_together(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Tensors:
    """The checkpoint's tensors again."""
    found: Tensors = {}
    for name, value in tensors.items():
        layer, expert, part = name.partition(".mlp.experts.")
        if config["model_type"] == "gpt_oss" and expert:
            if part.startswith("0.") and "up_proj" not in part:
                stack = f"{layer}{expert}"
                found |= {
                    f"{stack}{rest}": each for rest, each in _stacked(config, tensors, stack, part).items()
                }
        elif name.endswith("k_b_proj.weight"):
            values = tensors[name.replace("k_b_proj", "v_b_proj")]
            found[name.replace("k_b_proj", "kv_b_proj")] = torch.cat([value.mT, values], dim=1).flatten(0, 1)
        elif not name.endswith("v_b_proj.weight"):
            found[name] = value
    return found


def _experts(part: str, value: Tensor) -> Tensors:
    """Of gpt-oss: gates and what they multiply take turns, and weights are transposed."""
    end = "bias" if part.endswith("_bias") else "weight"
    layers = {"gate_proj": value[..., ::2], "up_proj": value[..., 1::2]}
    if part.startswith("down_proj"):
        layers = {"down_proj": value}
    return {
        f"{number}.{layer}.{end}": each.mT.contiguous() if end == "weight" else each.contiguous()
        for layer, experts in layers.items()
        for number, each in enumerate(experts)
    }


def _stacked(config: Mapping[str, Any], tensors: Mapping[str, Tensor], stack: str, part: str) -> Tensors:
    _, layer, end = part.split(".")

    def of(layer: str) -> Tensor:
        each = [tensors[f"{stack}{number}.{layer}.{end}"] for number in range(config["num_local_experts"])]
        return torch.stack(each).mT.contiguous() if end == "weight" else torch.stack(each)

    suffix = "_bias" if end == "bias" else ""
    if layer == "down_proj":
        return {f"down_proj{suffix}": of(layer)}
    return {f"gate_up_proj{suffix}": torch.stack([of("gate_proj"), of("up_proj")], dim=-1).flatten(-2)}


def _by_head(config: Mapping[str, Any], weight: Tensor) -> Tensor:
    return weight.view(config["num_attention_heads"], -1, weight.shape[-1])


def _widths(config: Mapping[str, Any]) -> list[int]:
    return [config["qk_nope_head_dim"], config["v_head_dim"]]
