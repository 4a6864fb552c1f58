"""Reads a rank's part of a checkpoint's tensors, and no more where a tensor is stored as it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from turnout.core.errors import ModelError
from turnout.core.interfaces.layer_share import LayerShare
from turnout.core.types.placement import Placement
from turnout.models.checkpoints.index import TensorEntry
from turnout.models.checkpoints.parameter_slots import ParameterSlot
from turnout.models.sharding.part import Part
from turnout.models.sharding.plan import ShardPlan

__all__ = ["of_rank", "whole_layer"]


def whole_layer(layer: nn.Module, share: LayerShare | None) -> nn.Module:
    """Returns a layer of the shape that the share's whole one has, without values."""
    if share is None:
        return layer
    outputs, inputs = share.whole
    if isinstance(layer, nn.Embedding):
        return nn.Embedding(outputs, inputs, device="meta")
    bias = isinstance(layer, nn.Linear) and layer.bias is not None
    return nn.Linear(inputs, outputs, bias, device="meta")


def of_rank(entry: TensorEntry, slot: ParameterSlot, plan: ShardPlan) -> TensorEntry:
    """Returns the entry that reads this rank's part. Raises ModelError for one that has none.

    The bias of a layer whose outputs ranks add up is rank 0's alone: it is 0 on all others.
    """
    placement, part = entry.placement, plan.parts.get(slot.name)
    if part is None:
        layer, _, attribute = slot.name.rpartition(".")
        if plan.rank and attribute == "bias" and layer in plan.summed:
            return replace(entry, placement=_changed(placement, torch.zeros_like))
        return entry
    if placement.into:
        return replace(entry, placement=_in_stack(entry, slot, part))
    stop = _real_stop(slot, part, plan)
    if stop <= part.start:  # nothing but padding
        return replace(entry, placement=_changed(placement, partial(_zeros, tuple(slot.shape))))
    placement = _narrowed(placement, replace(part, stop=stop), len(slot.shape))
    if stop < part.stop:
        placement = _changed(placement, partial(_padded, slot.shape[0]))
    return replace(entry, placement=placement)


def _real_stop(slot: ParameterSlot, part: Part, plan: ShardPlan) -> int:
    """Where the part ends in the checkpoint, whose vocabulary is not padded."""
    layers = {*plan.embeddings, plan.head}
    return min(part.stop, plan.vocab_size) if layers & set(slot.layers) else part.stop


def _in_stack(entry: TensorEntry, slot: ParameterSlot, part: Part) -> Placement:
    """Narrows a tensor that fills a place of a parameter of which each rank has a part, such as one expert of
    a stack. Raises ModelError where the place is neither whole in that dimension nor one of its groups."""
    placement, dim = entry.placement, part.dim
    into = list(placement.into)
    numbers = sum(isinstance(each, int) for each in into[:dim])  # dimensions that a single tensor lacks
    own, dims = replace(part, dim=dim - numbers), len(slot.shape) - numbers
    if dim >= len(into):
        return _narrowed(placement, own, dims)
    place = into[dim]
    if isinstance(place, slice) and part.group and place.stop - place.start == part.group:
        number, rest = divmod(place.start, part.group)
        if not rest:
            into[dim] = slice(number * part.width, (number + 1) * part.width)
            return replace(_narrowed(placement, replace(own, group=0), dims), into=tuple(into))
    raise ModelError(
        f"{entry.described} is one of several tensors that make {slot.name!r}, of which each rank would "
        "have a part; leave --tensor-parallel-size out"
    )


def _narrowed(placement: Placement, part: Part, dims: int) -> Placement:
    """Takes a part of what is placed: of what is read where that is possible, of what was read otherwise."""
    if placement.change is not None or part.group:
        return _changed(placement, part.of)
    dim = part.dim
    if placement.transposed and dim >= dims - 2:
        dim = 2 * dims - 3 - dim
    take = list(placement.take)
    kept = [at for at, each in enumerate(take) if isinstance(each, slice)]
    if dim < len(kept):
        at, given = kept[dim], take[kept[dim]]
        assert isinstance(given, slice)
        first = given.start or 0
        if given.step not in (None, 1) or first < 0:
            return _changed(placement, part.of)
        take[at] = slice(first + part.start, first + part.stop)
    else:
        take += [slice(None)] * (dim - len(kept))
        take.append(slice(part.start, part.stop))
    return replace(placement, take=tuple(take))


def _changed(placement: Placement, change: Callable[[Tensor], Tensor]) -> Placement:
    """Changes what is placed once more."""
    before = placement.change
    if before is None:
        return replace(placement, change=change)
    return replace(placement, change=lambda tensor: change(before(tensor)))


def _padded(rows: int, tensor: Tensor) -> Tensor:
    return torch.cat((tensor, tensor.new_zeros(rows - len(tensor), *tensor.shape[1:])))


def _zeros(shape: tuple[int, ...], tensor: Tensor) -> Tensor:
    return tensor.new_zeros(shape)
