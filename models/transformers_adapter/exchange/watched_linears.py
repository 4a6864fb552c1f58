"""What a model does with linear layers: whose weights others compute with, and which read the same input."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from turnout.models.transformers_adapter.exchange.places import without_numbers

__all__ = ["Watched", "watched_linears"]


@dataclass
class Watched:
    """What was seen of linear layers, by name."""

    read: set[str] = field(default_factory=set)
    """Those whose weights were computed with elsewhere than in the layer itself."""
    inputs: dict[str, list[Tensor]] = field(default_factory=lambda: defaultdict(list))
    """What each was given."""

    @property
    def kept(self) -> frozenset[str]:
        """The names of `read`, `without_numbers`."""
        return frozenset(map(without_numbers, self.read))

    @property
    def siblings(self) -> dict[str, tuple[str, ...]]:
        """Parts of one module that were always given the same tensor, by its name `without_numbers`.

        Modules of the same name have the same such parts, or none.
        """
        found: dict[str, set[tuple[str, ...]]] = defaultdict(set)
        parts: dict[str, list[str]] = defaultdict(list)
        for name in self.inputs:
            owner, _, part = name.rpartition(".")
            parts[owner].append(part)
        for owner, names in parts.items():
            found[without_numbers(owner)].add(self._alike(owner, names))
        alike = {name: next(iter(groups)) for name, groups in found.items() if len(groups) == 1}
        return {name: group for name, group in alike.items() if len(group) > 1}

    def _alike(self, owner: str, names: Sequence[str]) -> tuple[str, ...]:
        """Returns those that were given what the first was."""
        first = [id(each) for each in self.inputs[f"{owner}.{names[0]}"]]
        return tuple(
            name
            for name in names
            if [id(each) for each in self.inputs[f"{owner}.{name}"]] == first
            and f"{owner}.{name}" not in self.read
        )


@contextmanager
def watched_linears(layers: Mapping[str, nn.Linear]) -> Iterator[Watched]:
    """Yields what is seen of `layers` inside the block."""
    seen = Watched()
    weights = {name: layer._parameters.pop("weight") for name, layer in layers.items()}
    for name, layer in layers.items():
        weight = weights[name]
        assert weight is not None
        layer.__dict__["weight"] = watched = weight.detach().as_subclass(_WatchedWeight)
        watched.note = partial(seen.read.add, name)
        layer.__dict__["forward"] = partial(_linear, seen.inputs, name, weight.detach(), layer.bias)
    try:
        yield seen
    finally:
        for name, layer in layers.items():
            del layer.__dict__["weight"], layer.__dict__["forward"]
            layer._parameters["weight"] = weights[name]


def _linear(
    inputs: Mapping[str, list[Tensor]], name: str, weight: Tensor, bias: Tensor | None, x: Tensor
) -> Tensor:
    inputs[name].append(x)
    return nn.functional.linear(x, weight, bias)


class _WatchedWeight(Tensor):
    """A weight that says when it is computed with; to look at its dtype is not to compute."""

    note: Callable[[], None]

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func.__name__ != "__get__":
            for each in args:
                if isinstance(each, cls):
                    each.note()
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))
