"""Cases of which some run by default, and the others by -m slow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

__all__ = ["one_in"]


def one_in(count: int, cases: Iterable[Any], name: Callable[[Any], str]) -> list[Any]:
    """Returns all cases as parameters, of which the first of each `count` is not slow."""
    return [
        pytest.param(case, id=name(case), marks=[pytest.mark.slow] if number % count else [])
        for number, case in enumerate(cases)
    ]
