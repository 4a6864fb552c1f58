"""The share of a module that a family declares how to divide (`ModelFamily.division`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import nn

from turnout.core.errors import ConfigError
from turnout.core.interfaces.division import Cut, Division, Way
from turnout.core.types.model_spec import ModelSpec
from turnout.models.sharding.local_spec import padded_vocabulary
from turnout.models.sharding.part import Part

__all__ = ["cut_parameters", "declared_parts", "spec_of_division"]

BY_TOKEN = (Way.TOKENS, Way.HEAD)


def spec_of_division(spec: ModelSpec, division: Division, size: int) -> ModelSpec:
    """Returns the spec of one of `size` ranks, for what keeps keys and values."""
    first = division.attention[0]
    vocab_size = spec.vocab_size
    if any(way in BY_TOKEN for way in division.ways.values()):
        vocab_size = padded_vocabulary(spec.vocab_size, size) // size
    return replace(
        spec,
        heads=first.heads,
        kv_heads=first.kv_heads,
        vocab_size=vocab_size,
        attention=division.attention if spec.attention else (),
    )


def declared_parts(
    whole: nn.Module, division: Division, spec: ModelSpec, size: int, rank: int
) -> dict[str, Part]:
    """Returns a rank's part of each parameter. Raises ConfigError, with the numbers."""
    parts = {}
    by_token = tuple(f"{name}." for name, way in division.ways.items() if way in BY_TOKEN)
    for name, parameter in whole.named_parameters(remove_duplicate=False):
        if name.startswith(by_token):
            rows = padded_vocabulary(parameter.shape[0], size) // size
            parts[name] = Part(0, rank * rows, (rank + 1) * rows, rows * size)
        elif (cut := division.cuts.get(name)) is not None:
            parts[name] = _part(name, parameter.shape, cut, spec, size, rank)
    return parts


def _part(name: str, shape: torch.Size, cut: Cut, spec: ModelSpec, size: int, rank: int) -> Part:
    parts = cut.parts or size
    group, rest = divmod(shape[cut.dim], cut.groups)
    width, more = divmod(group, parts)
    if rest or more:
        of_groups = f" in {cut.groups} groups" if cut.groups > 1 else ""
        raise ConfigError(
            f"tensor_parallel_size={size} cannot divide {spec.architecture}: {name} is {shape[cut.dim]:,} "
            f"wide{of_groups}, which {parts} does not divide"
        )
    number = rank * parts // size
    return Part(cut.dim, number * width, (number + 1) * width, shape[cut.dim], group if cut.groups > 1 else 0)


def cut_parameters(module: nn.Module, parts: Mapping[str, Part]) -> None:
    """Narrows the parameters of a module without storage to a rank's parts; tied ones stay tied."""
    made: dict[nn.Parameter, nn.Parameter] = {}
    for name, parameter in list(module.named_parameters(remove_duplicate=False)):
        if (part := parts.get(name)) is None:
            continue
        if parameter not in made:
            made[parameter] = nn.Parameter(
                torch.empty(part.shape_of(parameter.shape), dtype=parameter.dtype, device=parameter.device),
                requires_grad=False,
            )
        owner, _, attribute = name.rpartition(".")
        layer = module.get_submodule(owner)
        setattr(layer, attribute, made[parameter])
        if isinstance(layer, nn.Linear):
            layer.out_features, layer.in_features = layer.weight.shape
