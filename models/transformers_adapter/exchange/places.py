"""Modules of the same code and the same numbers: what is true of one is true of all of them."""

from __future__ import annotations

from typing import NamedTuple

from torch import nn

__all__ = ["Place", "place_of", "without_numbers"]


class Place(NamedTuple):
    """Where modules are that compute alike, but for their sizes and weights."""

    name: str
    """With a star for the number of a layer."""
    kind: type[nn.Module]
    settings: tuple[tuple[str, object], ...]
    """Its attributes that are no sizes, such as an epsilon, and the classes of what it consists of."""


def place_of(name: str, module: nn.Module) -> Place:
    """Returns the place of the module of that name."""
    own = [
        (key, value) for key, value in vars(module).items() if not key.startswith("_") and _is_plain(value)
    ]
    parts = [(key, type(child).__name__) for key, child in module.named_children()]
    return Place(without_numbers(name), type(module), tuple(sorted([*own, *parts], key=lambda pair: pair[0])))


def _is_plain(value: object) -> bool:
    return isinstance(value, float | bool | str | None)


def without_numbers(name: str) -> str:
    """Returns the name of a module with a star for the number of its layer, of its expert, and so on."""
    return ".".join("*" if part.isdecimal() else part for part in name.split("."))
