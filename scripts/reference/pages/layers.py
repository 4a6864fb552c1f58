"""docs/reference/plugins/models.md: the layers that model families share, from their docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

from turnout.scripts.reference.blocks import Blocks
from turnout.scripts.reference.tables import paragraph

MODULES = (
    "decoder",
    "experts",
    "gates",
    "layers",
    "normed_attention",
    "norms",
    "numbers",
    "residuals",
    "rope",
    "routers",
)
"""Of ``turnout.models.decoder``: what they export."""


def blocks() -> Blocks:
    return {"shared layers": _layers}


def _layers() -> str:
    return "\n".join(_section(import_module(f"turnout.models.decoder.{name}")) for name in MODULES)


def _section(module: ModuleType) -> str:
    rows = "\n".join(_members(module))
    return f"From `{module.__name__}`:\n\n{rows}\n"


def _members(module: ModuleType) -> Iterator[str]:
    """Yields a line for each name. Raises LookupError for one without a docstring."""
    for name in module.__all__:
        made = getattr(module, name)
        told = inspect.getdoc(made)
        if told is None:
            raise LookupError(f"{module.__name__}.{name} has no docstring")
        yield f"- `{_call(name, made)}`: {paragraph(told)}"


def _call(name: str, made: Callable[..., Any]) -> str:
    own = made.__init__ if inspect.isclass(made) and "__init__" in vars(made) else made
    if inspect.isclass(own):
        return name
    told = re.sub(r"<function (\w+) at 0x\w+>", r"\1", str(inspect.signature(own)))
    arguments = told.replace("'", "").removeprefix("(self, ").removeprefix("(")
    given = arguments.rpartition(") -> ")[0] or arguments.removesuffix(")")
    return f"{name}({given})"
