"""What a logits processor derives from a request's parameters, kept as long as the request exists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from turnout.core.types.request import Request

__all__ = ["RequestCache"]

T = TypeVar("T")


class RequestCache(Generic[T]):
    """A value for each request."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Request, T] = WeakKeyDictionary()

    def get(self, request: Request, make: Callable[[Request], T]) -> T:
        """The value of a request, made when it is first asked for."""
        value = self._known.get(request)
        if value is None:
            value = self._known[request] = make(request)
        return value
