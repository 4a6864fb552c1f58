"""Which part of each parameter a rank has, found by comparing a model with one rank's share of it.

A family builds both, so no table of names is needed: a parameter that is narrower in the share is split along
the dimension in which it is, and all others are whole on every rank. What is split in a way that the layers
of `layers.py` do not add up is refused, naming the layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import nn

from turnout.core.errors import ConfigError
from turnout.core.interfaces.collective import Collective
from turnout.core.interfaces.models import ModelFamily
from turnout.core.types.model_spec import ModelSpec
from turnout.models.decoder.decoder import Decoder
from turnout.models.decoder.latent_attention import HeadExpansion
from turnout.models.decoder.layers import RMSNorm, SinkAttention
from turnout.models.decoder.normed_attention import WideNorms
from turnout.models.meta_model import meta_model
from turnout.models.sharding.local_spec import local_spec, padded_vocabulary

__all__ = ["Part", "ShardPlan", "plan_shards"]


@dataclass(frozen=True)
class Part:
    """A rank's part of a parameter: the numbers from `start` to `stop` along `dim`."""

    dim: int
    start: int
    stop: int


@dataclass(frozen=True)
class ShardPlan:
    """What one rank has of a model."""

    spec: ModelSpec
    """Of the rank's share: the module is built from it."""
    vocab_size: int
    """Of the whole model, without padding."""
    collective: Collective
    parts: Mapping[str, Part]
    """By parameter; those that are not here are whole on every rank."""
    summed: tuple[str, ...]
    """Linear layers whose inputs are split, so that ranks add up what they put out."""
    embeddings: tuple[str, ...]
    """Embeddings that are split by tokens."""
    norms: tuple[str, ...]
    """Norms over what is split."""
    head: str | None
    """The layer that makes logits, whose outputs are split; None: there is none."""

    @property
    def rank(self) -> int:
        return self.collective.rank


def plan_shards(family: ModelFamily, spec: ModelSpec, collective: Collective) -> ShardPlan:
    """Returns this rank's share of a model. Raises ConfigError, naming what cannot be divided."""
    size = collective.size
    local = local_spec(spec, size)
    whole = meta_model(family, replace(spec, vocab_size=padded_vocabulary(spec.vocab_size, size)))
    share = meta_model(family, local)
    if not isinstance(whole, Decoder):
        raise ConfigError(
            f"tensor_parallel_size={size}: {spec.architecture} is run by {type(whole).__name__}, whose "
            "layers are not known to be divisible; families that build Turnout's own decoder are. Leave "
            "--tensor-parallel-size out, or start several replicas"
        )
    parts = dict(_parts(whole, share, spec, size, collective.rank))
    summed, embeddings, norms, head = [], [], [], None
    for name, part in parts.items():
        owner, _, attribute = name.rpartition(".")
        layer = share.get_submodule(owner)
        if isinstance(layer, nn.Linear) and part.dim == 0:
            head = owner if layer is getattr(share, "lm_head", None) else head
        elif isinstance(layer, nn.Linear):
            summed.append(owner)
        elif isinstance(layer, nn.Embedding) and part.dim == 0:
            embeddings.append(owner)
        elif type(layer) is RMSNorm and isinstance(share.get_submodule(owner.rpartition(".")[0]), WideNorms):
            norms.append(owner)
        elif not (isinstance(layer, (HeadExpansion, SinkAttention)) and part.dim == 0):
            raise ConfigError(
                f"tensor_parallel_size={size} cannot divide {spec.architecture}: {owner}, a "
                f"{type(layer).__name__}, would have a part of {attribute!r} on each rank, and no layer is "
                "known that adds it up"
            )
    return ShardPlan(
        local,
        spec.vocab_size,
        collective,
        parts,
        tuple(summed),
        tuple(embeddings),
        tuple(norms),
        head,
    )


def _parts(whole: nn.Module, share: nn.Module, spec: ModelSpec, size: int, rank: int) -> Mapping[str, Part]:
    ours = dict(share.named_parameters(remove_duplicate=False))
    theirs = dict(whole.named_parameters(remove_duplicate=False))
    if ours.keys() != theirs.keys():
        odd = sorted(ours.keys() ^ theirs.keys())[0]
        raise ConfigError(
            f"tensor_parallel_size={size} cannot divide {spec.architecture}: {odd} is not in the whole model "
            "and in a rank's share alike"
        )
    parts = {}
    for name, parameter in ours.items():
        if (part := _part(parameter.shape, theirs[name].shape, rank, size)) is not None:
            parts[name] = part
        elif parameter.shape != theirs[name].shape:
            raise ConfigError(
                f"tensor_parallel_size={size} cannot divide {spec.architecture}: {name} of shape "
                f"{list(theirs[name].shape)} would be {list(parameter.shape)} on each rank"
            )
    return parts


def _part(ours: torch.Size, theirs: torch.Size, rank: int, size: int) -> Part | None:
    """Returns a rank's part; None where both have one shape, or differ in more than one dimension.

    Fewer parts than ranks: neighbours have the same one.
    """
    differing = [dim for dim, (our, their) in enumerate(zip(ours, theirs, strict=False)) if our != their]
    if len(differing) != 1 or len(ours) != len(theirs):
        return None
    (dim,) = differing
    parts, rest = divmod(theirs[dim], ours[dim])
    if rest or size % parts:
        return None
    number = rank * parts // size
    return Part(dim, number * ours[dim], (number + 1) * ours[dim])
