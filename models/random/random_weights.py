"""Writes checkpoints with random weights, for tests and measurements."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from turnout.core.errors import ModelError
from turnout.core.interfaces.models import ModelFamily
from turnout.models import families
from turnout.models.checkpoints.checkpoint import INDEX_FILE, SINGLE_FILE
from turnout.models.checkpoints.saving import save_tensors
from turnout.models.meta_model import meta_model

__all__ = ["write_random_checkpoint"]


def write_random_checkpoint(
    folder: Path,
    config: Mapping[str, Any],
    *,
    seed: int = 0,
    dtype: str = "float32",
    shards: int = 1,
    device: str = "cpu",
) -> None:
    """Write ``config.json`` and safetensors for a model of that config, one shard in memory at a time.

    The weights depend on `config`, `seed`, `dtype` and `device`, which draws them, not on `shards`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**config, "dtype": dtype}, indent=2) + "\n")
    parameters = _parameters(config)
    groups = _split(list(parameters), shards)
    names = [_file_name(index, len(groups)) for index in range(len(groups))]
    generator = torch.Generator(device).manual_seed(seed)
    for name, group in zip(names, groups, strict=True):
        tensors = {key: _draw(key, parameters[key], getattr(torch, dtype), generator).cpu() for key in group}
        save_tensors(tensors, folder / name, {})
    if len(groups) > 1:
        _write_index(folder, dict(_located(names, groups)), parameters, getattr(torch, dtype).itemsize)


def _parameters(config: Mapping[str, Any]) -> dict[str, nn.Parameter]:
    """The model's parameters by name, without values; tied ones once."""
    family = _family(config)
    return dict(meta_model(family, family.spec(config)).named_parameters())


def _family(config: Mapping[str, Any]) -> ModelFamily:
    built_in: Iterable[type[ModelFamily]] = (getattr(families, name) for name in families.__all__)
    for family in built_in:
        if set(config.get("architectures", ())) & set(family.architectures):
            return family()
    raise ModelError(f"no family builds architectures = {config.get('architectures')!r}")


def _draw(name: str, like: Tensor, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Draw values with which greedy text varies.

    With smaller queries and keys the model would attend to all tokens alike, and a larger embedding would
    outweigh what the layers add to it. In both cases the model would soon repeat one token.
    """
    out = torch.empty(like.shape, dtype=dtype, device=generator.device)
    if "norm" in name:
        return out.normal_(mean=1.0, std=0.1, generator=generator)
    if like.dim() == 1:
        return out.normal_(std=0.1, generator=generator)
    gain = 2.0 if ".q_proj." in name or ".k_proj." in name else 1.0
    return out.normal_(std=gain * like.shape[1] ** -0.5, generator=generator)


def _split(names: list[str], shards: int) -> list[list[str]]:
    """Consecutive groups of nearly equal length, at most `shards`."""
    length = -(-len(names) // shards)
    return [names[start : start + length] for start in range(0, len(names), length)]


def _file_name(index: int, count: int) -> str:
    return SINGLE_FILE if count == 1 else f"model-{index + 1:05}-of-{count:05}.safetensors"


def _located(names: list[str], groups: list[list[str]]) -> Iterator[tuple[str, str]]:
    for name, group in zip(names, groups, strict=True):
        yield from ((key, name) for key in group)


def _write_index(
    folder: Path, weight_map: Mapping[str, str], parameters: Mapping[str, nn.Parameter], itemsize: int
) -> None:
    total = itemsize * sum(parameter.numel() for parameter in parameters.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / INDEX_FILE).write_text(json.dumps(index, indent=2) + "\n")
