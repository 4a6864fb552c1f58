"""Tells how far the loading of a model's weights is, to whatever started it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

__all__ = ["counted", "progress_to"]

Item = TypeVar("Item")
Tell = Callable[[float], None]

STEPS = 50
"""A load tells its progress about so often."""

_tell: ContextVar[Tell | None] = ContextVar("tell_loading_progress", default=None)
"""Of the thread that loads: readers of checkpoints lie far below the process that wants to know."""


@contextmanager
def progress_to(tell: Tell) -> Iterator[None]:
    """Has `tell` called with the part that is loaded, from 0 to 1, while the block lasts."""
    token = _tell.set(tell)
    try:
        yield
    finally:
        _tell.reset(token)


def counted(items: Sequence[Item], shown: Iterable[Item]) -> Iterator[Item]:
    """Yields what is `shown`, which are the items, and tells how many of them have been used."""
    tell, every = _tell.get(), max(1, len(items) // STEPS)
    for number, item in enumerate(shown):
        if tell is not None and number % every == 0:
            tell(number / len(items))
        yield item
