"""Pages of a list, as OpenAI's clients ask for them: ``limit``, ``after`` and ``order``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from turnout.core.errors import RequestError

__all__ = ["DEFAULT", "MOST", "Page"]

T = TypeVar("T")
MOST, DEFAULT = 100, 20
"""Items of a page, where a list has no bounds of its own."""


@dataclass(frozen=True)
class Page:
    """Which part of a list is asked for."""

    limit: int
    after: str | None
    """The name of the last item of the page before."""
    newest_first: bool

    @classmethod
    def of(cls, query: Mapping[str, str], *, most: int = MOST, default: int = DEFAULT) -> Page:
        """Raises RequestError for parameters that make no page."""
        limit, order = query.get("limit", str(default)), query.get("order", "desc")
        if not (limit.isascii() and limit.isdecimal() and len(limit) < 9 and 1 <= int(limit) <= most):
            raise RequestError(f"limit should be a number from 1 to {most:,}, not {limit!r}", "limit")
        if order not in ("asc", "desc"):
            raise RequestError(f"order should be asc or desc, not {order!r}", "order")
        return cls(int(limit), query.get("after"), order == "desc")

    def of_all(self, items: Sequence[T], name: Callable[[T], str]) -> tuple[list[T], bool]:
        """The page's items of all, which come oldest first, and whether more follow. Raises RequestError."""
        ordered = list(items[::-1] if self.newest_first else items)
        if self.after is not None:
            names = [name(item) for item in ordered]
            if self.after not in names:
                raise RequestError(
                    f"after should be the id of an item of the list, not {self.after!r}", "after"
                )
            ordered = ordered[names.index(self.after) + 1 :]
        return ordered[: self.limit], len(ordered) > self.limit
