"""Imports transformers without what it imports and a decoder never calls."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

from turnout.core.process import no_collections

__all__ = ["quick_import"]

OPTIMIZE, MATCH = "scipy.optimize", "linear_sum_assignment"
"""All that transformers imports of it, for losses of object detection, with any model's module. SciPy's
optimizers take half a second."""


@contextmanager
def quick_import() -> Iterator[None]:
    """Lets transformers have a function that imports `MATCH` when it is called; collects no garbage."""
    stand_in = _StandIn(OPTIMIZE)
    sys.modules.setdefault(OPTIMIZE, stand_in)
    try:
        with no_collections():
            yield
    finally:
        if sys.modules.get(OPTIMIZE) is stand_in:
            del sys.modules[OPTIMIZE]


class _StandIn(ModuleType):
    """What is imported instead. Asked for anything else, it is the module itself."""

    @staticmethod
    def linear_sum_assignment(*args: Any, **options: Any) -> Any:
        return getattr(_loaded(), MATCH)(*args, **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(_loaded(), name)


def _loaded() -> ModuleType:
    if isinstance(sys.modules.get(OPTIMIZE), _StandIn):
        del sys.modules[OPTIMIZE]
    return import_module(OPTIMIZE)
