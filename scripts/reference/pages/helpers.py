"""docs/reference/plugins: functions that plugins may call, from their docstrings."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from turnout.core.engine.logits_processing import adjust
from turnout.models.families.base import read_spec
from turnout.plugins.decoding.candidates import continue_each
from turnout.sampling.draws import draw
from turnout.scripts.reference.blocks import Blocks
from turnout.scripts.reference.pages.interfaces import prose, signature_lines

HELPERS: dict[str, tuple[Callable[..., Any], ...]] = {
    "helpers of decoding": (adjust, draw, continue_each),
    "helpers of models": (read_spec,),
}


def blocks() -> Blocks:
    return {name: partial(_helpers, functions) for name, functions in HELPERS.items()}


def _helpers(functions: Sequence[Callable[..., Any]]) -> str:
    return "\n".join(map(_helper, functions))


def _helper(function: Callable[..., Any]) -> str:
    """Raises LookupError for a function without a docstring."""
    told = inspect.getdoc(function)
    if told is None:
        raise LookupError(f"{function.__name__} has no docstring")
    arguments, _, returns = str(inspect.signature(function)).replace("'", "")[1:].rpartition(") -> ")
    shown = signature_lines(function.__name__, arguments, returns)
    source = f"from {function.__module__} import {function.__name__}"
    return f"```python\n{source}\n\n\n{shown}\n```\n\n{prose(told)}\n"
