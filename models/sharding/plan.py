"""Which part of each parameter a rank has, found by comparing a model with one rank's share of it.

A family builds both, so no table of names is needed: a parameter that is narrower in the share is split along
the dimension in which it is, and all others are whole on every rank. What is split in a way that the layers
of `layers.py` do not add up is refused, naming the layer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import nn

from turnout.core.errors import ConfigError
from turnout.core.interfaces.collective import Collective
from turnout.core.interfaces.division import Division, Way
from turnout.core.interfaces.layer_share import LayerShare
from turnout.core.interfaces.models import ModelFamily
from turnout.core.types.model_spec import ModelSpec
from turnout.models.decoder.decoder import Decoder
from turnout.models.decoder.latent_attention import HeadExpansion
from turnout.models.decoder.layers import RMSNorm, SinkAttention
from turnout.models.decoder.normed_attention import WideNorms
from turnout.models.meta_model import meta_model
from turnout.models.sharding.declared import declared_parts, spec_of_division
from turnout.models.sharding.local_spec import local_spec, padded_vocabulary
from turnout.models.sharding.part import Part
from turnout.models.sharding.stages import (
    OF_DECODER,
    StagePlan,
    check_layers,
    divide_layers,
    keep_declared,
    keep_layers,
    renumber,
    spec_of_layers,
)
from turnout.models.sharding.whole_experts import keep_experts

__all__ = ["ShardPlan", "plan_of_division", "plan_shards", "spec_of_rank", "stages_of"]


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
    stage: StagePlan | None = None
    """Which layers it has; None: all."""
    whole_experts: bool = False
    """Whether it has some experts whole, instead of a part of each."""
    declared: Mapping[str, Way] = field(default_factory=dict)
    """What else ranks do together, by module, where the family declares how its module is divided: it builds
    the whole one, whose parameters are narrowed."""

    @property
    def rank(self) -> int:
        return self.collective.rank

    @property
    def leads(self) -> bool:
        """Whether this is rank 0 of the engine."""
        return self.rank == 0 and (self.stage is None or self.stage.first)

    @property
    def kv_spec(self) -> ModelSpec:
        """Of the layers whose keys and values this rank has."""
        return self.spec if self.stage is None else spec_of_layers(self.spec, self.stage.layers)

    def share_of(self, name: str, layer: nn.Linear | nn.Embedding) -> LayerShare | None:
        """Returns what this rank has of a layer; None: all. layer: of the share, or of its shape."""
        part = self.parts.get(f"{name}.weight")
        if part is None or part.group:  # groups have outputs, each of which is scaled by itself
            return None
        own: tuple[int, ...] = tuple(layer.weight.shape)
        ranges, whole = [range(size) for size in own], list(own)
        ranges[part.dim], whole[part.dim] = range(part.start, part.stop), part.whole
        if name in self.embeddings or name == self.head:
            whole[0] = self.vocab_size
        return LayerShare(name, ranges[0], ranges[1], (whole[0], whole[1]), self.collective)

    def leave_to_others(self, module: nn.Module) -> set[str]:
        """Takes out of a share what other stages have, and other ranks' experts; returns the names of the
        layers that had parameters."""
        before = _with_parameters(module)
        if self.stage is not None:
            if isinstance(module, Decoder):
                keep_layers(module, self.stage, self.spec)
            else:
                keep_declared(module, self.stage)
        if self.whole_experts:
            keep_experts(module, self.rank, self.collective.size)
        return before - _with_parameters(module)


def _with_parameters(module: nn.Module) -> set[str]:
    names = (name for name, _ in module.named_parameters(remove_duplicate=False))
    return {name.rpartition(".")[0] for name in names}


def plan_shards(
    family: ModelFamily,
    spec: ModelSpec,
    collective: Collective,
    line: Collective | None = None,
    layers: Sequence[int] = (),
    *,
    whole_experts: bool = False,
) -> ShardPlan:
    """Returns this rank's share of a model. Raises ConfigError, naming what cannot be divided.

    collective: the ranks that divide each layer; line: the stages that divide the layers, None: one has all;
    layers: how many each stage has; empty: about as many parameters each; whole_experts: each rank has some
    experts whole.
    """
    size = collective.size
    division = family.division(spec, size, 1 if line is None else line.size)
    stage = _stage_of(family, spec, collective, line, layers)
    if division is not None:
        return plan_of_division(meta_model(family, spec), division, spec, collective, stage)
    local = local_spec(spec, size, whole_experts=whole_experts)
    whole = meta_model(family, replace(spec, vocab_size=padded_vocabulary(spec.vocab_size, size)))
    share = meta_model(family, local)
    if not isinstance(whole, Decoder):
        asked = f"tensor_parallel_size={size}" if line is None else f"pipeline_parallel_size={line.size}"
        raise _not_divisible(asked, spec, whole)
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
    plan = ShardPlan(
        local,
        spec.vocab_size,
        collective,
        parts,
        tuple(summed),
        tuple(embeddings),
        tuple(norms),
        head,
        stage,
        whole_experts,
    )
    return _of_what_is_here(plan, share)


def _of_what_is_here(plan: ShardPlan, share: nn.Module) -> ShardPlan:
    """Takes out of `share`, and of the plan, what other ranks have."""
    plan.leave_to_others(share)
    here = dict(share.named_modules())
    return replace(
        plan,
        summed=tuple(name for name in plan.summed if name in here),
        embeddings=tuple(name for name in plan.embeddings if name in here),
        norms=tuple(name for name in plan.norms if name in here),
        head=plan.head if plan.head in here else None,
    )


def spec_of_rank(
    family: ModelFamily, spec: ModelSpec, size: int, stages: int, *, whole_experts: bool = False
) -> ModelSpec:
    """Returns the spec of one of `size` ranks that divide each layer. Raises ConfigError as `plan_shards`."""
    division = family.division(spec, size, stages)
    if division is None:
        return local_spec(spec, size, whole_experts=whole_experts)
    return spec_of_division(spec, division, size)


def _stage_of(
    family: ModelFamily,
    spec: ModelSpec,
    collective: Collective,
    line: Collective | None,
    layers: Sequence[int],
) -> StagePlan | None:
    if line is None:
        return None
    return StagePlan(stages_of(family, spec, line.size, layers)[line.rank], line, collective.rank == 0)


def plan_of_division(
    module: nn.Module,
    division: Division,
    spec: ModelSpec,
    collective: Collective,
    stage: StagePlan | None = None,
) -> ShardPlan:
    """Returns a rank's share of a module that its family declares how to divide.

    module: the whole one; of a pipeline this stage's part is left of it. spec: of the whole model.
    """
    parts: Mapping[str, Part] = {}
    ways: Mapping[str, Way] = {}
    if collective.size > 1:
        parts = declared_parts(module, division, spec, collective.size, collective.rank)
        ways = division.ways
    if stage is not None:
        keep_declared(module, stage)
    modules = dict(module.named_modules())
    here = {name: way for name, way in ways.items() if name in modules}

    def of_way(*kinds: Way) -> tuple[str, ...]:
        return tuple(name for name, way in here.items() if way in kinds)

    return ShardPlan(
        spec_of_division(spec, division, collective.size),
        spec.vocab_size,
        collective,
        parts,
        of_way(Way.SUMMED, Way.OWN_INPUTS),
        of_way(Way.TOKENS),
        (),
        next(iter(of_way(Way.HEAD)), None),
        stage,
        declared={name: way for name, way in here.items() if way not in (Way.SUMMED, Way.TOKENS, Way.HEAD)},
    )


def stages_of(
    family: ModelFamily, spec: ModelSpec, stages: int, layers: Sequence[int] = ()
) -> tuple[range, ...]:
    """Returns the layers of each stage. Raises ConfigError, naming what cannot be divided.

    layers: how many each has; empty: about as many parameters each.
    """
    whole, division = meta_model(family, spec), family.division(spec, 1, stages)
    if division is not None and division.pipeline is not None:
        parts = division.pipeline
    elif isinstance(whole, Decoder):
        parts = OF_DECODER
    else:
        raise _not_divisible(f"pipeline_parallel_size={stages}", spec, whole)
    if layers:
        divided = check_layers(layers, spec.layers, stages)
    else:
        divided = divide_layers(whole, parts, stages, spec.architecture)
    for each in divided:
        spec_of_layers(spec, each)
    if not isinstance(whole, Decoder):
        return divided
    for number, layer in enumerate(whole.model.layers):
        renumber(layer, number, 0, spec)
    return divided


def _not_divisible(asked: str, spec: ModelSpec, whole: nn.Module) -> ConfigError:
    return ConfigError(
        f"{asked}: {spec.architecture} is run by {type(whole).__name__}, whose layers are not known to be "
        "divisible; families that build Turnout's own decoder are. Leave "
        f"--{asked.partition('=')[0].replace('_', '-')} out, or start several replicas"
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
    return Part(dim, number * ours[dim], (number + 1) * ours[dim], theirs[dim])
