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
from turnout.models.sharding.plan import Part, ShardPlan

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
        raise ModelError(
            f"{entry.described} is one of several tensors that make {slot.name!r}, of which each rank would "
            "have a part; leave --tensor-parallel-size out"
        )
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


def _narrowed(placement: Placement, part: Part, dims: int) -> Placement:
    """Takes a part of what is placed: of what is read where that is possible, of what was read otherwise."""
    index = (slice(None),) * part.dim + (slice(part.start, part.stop),)
    if placement.change is not None:
        return _changed(placement, lambda tensor: tensor[index])
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
            return _changed(placement, lambda tensor: tensor[index])
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
