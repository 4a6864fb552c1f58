"""Imports transformers without what a decoder never calls, and without reading its files twice."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from turnout.core.process import no_collections

__all__ = ["quick_import", "without_optimizers"]

OPTIMIZE, MATCH = "scipy.optimize", "linear_sum_assignment"
"""All that transformers imports of it, for losses of object detection, with any model's module. SciPy's
optimizers take half a second."""


@contextmanager
def quick_import() -> Iterator[None]:
    """Imports transformers, and lets modules of it be imported; collects no garbage."""
    with no_collections(), without_optimizers():
        _import_models()
        yield


@contextmanager
def without_optimizers() -> Iterator[None]:
    """Lets transformers have a function that imports `MATCH` when it is called."""
    stand_in = _StandIn(OPTIMIZE)
    sys.modules.setdefault(OPTIMIZE, stand_in)
    try:
        yield
    finally:
        if sys.modules.get(OPTIMIZE) is stand_in:
            del sys.modules[OPTIMIZE]


def _import_models() -> None:
    """Imports ``transformers.models`` with the list of classes that ``transformers`` made of the same files.

    Either reads some 3,000 files for the list, which takes half a second.
    """
    import transformers

    name = "transformers.models"
    if name in sys.modules:
        return
    lists: Any = import_module("transformers.utils.import_utils")
    listed = lists.define_import_structure
    of_all = listed(Path(transformers.__file__).parent / "models", prefix="models")  # which it remembers
    of_models = {
        needed: {
            module.removeprefix("models."): classes
            for module, classes in modules.items()
            if module.startswith("models.")
        }
        for needed, modules in of_all.items()
    }
    lists.define_import_structure = lambda *_, **__: of_models
    try:
        import_module(name)
    finally:
        lists.define_import_structure = listed


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
