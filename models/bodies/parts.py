"""Which tensors a module has places for, by the names of its parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnout.core.types.placement import Renamed, placements

if TYPE_CHECKING:
    from torch import nn

__all__ = ["ModuleParts"]


class ModuleParts:
    """The names of a module's parts."""

    def __init__(self, module: nn.Module | None = None) -> None:
        """None: it is not built yet, and has none."""
        self._names = frozenset(name for name, _ in module.named_modules()) if module is not None else ()

    def have(self, renamed: Renamed) -> bool:
        """Says whether every tensor that a family names is in one of the parts."""
        return all(each.name.rpartition(".")[0] in self._names for each in placements(renamed))
