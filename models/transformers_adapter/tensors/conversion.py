"""Tensors that a checkpoint stores in another form than transformers' modules have them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from torch import Tensor
from transformers.core_model_loading import (
    Chunk,
    Concatenate,
    ConversionOps,
    MergeModulelist,
    Transpose,
    WeightConverter,
)

from turnout.core.errors import ModelError
from turnout.core.types.placement import Index, Placement

__all__ = ["converted"]

UNCHANGED = ("Force16BytesAlignment",)
"""Steps that change where numbers lie in memory, and not the numbers."""

SPLIT = "Split"
"""What later versions of transformers call parts that are not equal."""


def converted(
    converter: WeightConverter, pattern: str, key: str, name: str, shapes: Mapping[str, Tensor]
) -> Sequence[Placement]:
    """Returns where a checkpoint's tensor goes that `converter` converts.

    pattern: which of its sources the tensor is; name: of the first tensor that it goes to; shapes: the
    model's tensors. Raises ModelError for conversions that no placement says.
    """
    operations = [step for step in converter.operations if type(step).__name__ not in UNCHANGED]
    steps = [type(step) for step in operations]
    dims = [getattr(step, "dim", 0) for step in operations]
    sources, targets = list(converter.source_patterns), list(converter.target_patterns)
    if not steps:
        return [Placement(name)]
    if steps == [MergeModulelist] and dims == [0]:
        return [Placement(name, into=(_number(pattern, key),))]
    if steps == [MergeModulelist, Concatenate] and dims == [0, 1]:
        part = _part(sources.index(pattern), len(sources), shapes[name].shape[1])
        return [Placement(name, into=(_number(pattern, key), part))]
    if steps == [Concatenate] and dims == [0] and _are_equal(operations[0]):
        return [Placement(name, into=(_part(sources.index(pattern), len(sources), shapes[name].shape[0]),))]
    if dims == [0] and (steps == [Chunk] or steps[0].__name__ == SPLIT):
        return _chunks(name, targets, shapes)
    if steps == [Transpose] and _are_last(operations[0], shapes[name]):
        return [Placement(name, transposed=True)]
    listed = ", ".join(step.__name__ for step in steps)
    raise ModelError(
        f"{key!r} is stored in another form than {name!r} of transformers ({listed}), which is not "
        "read; convert the checkpoint: load it with transformers, and save_pretrained"
    )


def _number(pattern: str, key: str) -> int:
    """Returns the number that stands in a key where its pattern has a star."""
    found = re.search(re.escape(pattern).replace(r"\*", r"(\d+)"), key)
    if found is None:
        raise ModelError(f"{key!r} has no number where transformers expects one ({pattern})")
    return int(found.group(1))


def _part(index: int, count: int, size: int) -> slice:
    return slice(index * size // count, (index + 1) * size // count)


def _are_equal(step: ConversionOps) -> bool:
    return getattr(step, "num_shards_attribute", None) is None


def _chunks(name: str, targets: Sequence[str], shapes: Mapping[str, Tensor]) -> list[Placement]:
    """Returns the places of a tensor's parts, each as large as its target."""
    first = targets[0]
    names = [name.replace(first, target, 1) for target in targets]
    places, start = [], 0
    for each in names:
        size = shapes[each].shape[0]
        take: Index = (slice(start, start + size),)
        places.append(Placement(each, take=take))
        start += size
    return places


def _are_last(step: ConversionOps, like: Tensor) -> bool:
    given = {dim % like.dim() for dim in (getattr(step, "dim0", 0), getattr(step, "dim1", 1))}
    return given == {like.dim() - 1, like.dim() - 2} and not getattr(step, "check_dims", False)
