"""What a scheduling policy sees: requests it can read and not change, and questions it can ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from turnout.core.request import Request

__all__ = ["KVView", "RequestView", "View", "unveil"]


class RequestView:
    """A request as policies see it. All of it is read-only; times are seconds on the engine's clock."""

    __slots__ = ("_request",)
    _request: Request

    def __init__(self, request: Request) -> None:
        object.__setattr__(self, "_request", request)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"policies cannot change a request: {name} is read-only")

    @property
    def id(self) -> str:
        return self._request.spec.id

    @property
    def client(self) -> str:
        """Whose request this is: the ``user`` it named, else its API key's digest; empty for neither."""
        return self._request.spec.client

    @property
    def priority(self) -> int:
        """As the client gave it; lower is more urgent, 0 when not given."""
        return self._request.spec.priority

    @property
    def arrival(self) -> float:
        return self._request.timing.arrival

    @property
    def scheduled(self) -> float | None:
        """When it was first admitted."""
        return self._request.timing.scheduled

    @property
    def first_token(self) -> float | None:
        return self._request.timing.first_token

    @property
    def preemptions(self) -> int:
        return len(self._request.timing.preempted)

    @property
    def deadline(self) -> float | None:
        """When it should be finished."""
        return self._after(self._request.spec.deadline)

    @property
    def ttft_deadline(self) -> float | None:
        """When its first token should be there."""
        return self._after(self._request.spec.ttft_deadline)

    @property
    def prompt(self) -> tuple[int, ...]:
        """Token ids; a copy."""
        return tuple(self._request.spec.prompt)

    @property
    def prompt_tokens(self) -> int:
        return len(self._request.spec.prompt)

    @property
    def output_tokens(self) -> int:
        """Produced so far, over all its choices."""
        return self._request.output_tokens

    @property
    def max_tokens(self) -> int:
        """Output tokens of one choice at most."""
        return self._request.limit - len(self._request.spec.prompt)

    @property
    def choices(self) -> int:
        """Sequences it keeps alive at most."""
        return self._request.width

    @property
    def pending(self) -> int:
        """Tokens it wants computed this step: all of its prompt at first, one for each choice later."""
        return self._request.pending

    @property
    def decoding(self) -> bool:
        """It needs nothing computed but its next tokens; False: a prompt, or what a preemption cost."""
        return self._request.level

    def _after(self, seconds: float | None) -> float | None:
        return None if seconds is None else self._request.timing.arrival + seconds

    def __repr__(self) -> str:
        return repr(self._request)


def unveil(view: RequestView) -> Request:
    """The request behind a view: for the mechanism alone."""
    return view._request


class KVView(NamedTuple):
    """KV memory as the step begins, in token positions."""

    free: int
    """Could be reserved."""
    capacity: int
    """In the whole pool."""


class View(NamedTuple):
    """What a policy looks at when it is asked for an order. No question it can ask changes anything."""

    now: float
    """Seconds on the engine's clock, the one `RequestView.arrival` was read from."""
    running: tuple[RequestView, ...]
    """In order of admission."""
    waiting: tuple[RequestView, ...]
    """Preempted ones first, then in order of arrival."""
    kv: KVView
    fits: Callable[[RequestView], bool]
    """Would this request, all of what it wants this step, be granted right now?"""
    cached: Callable[[RequestView], int]
    """How many leading tokens of a waiting request's first sequence need no compute, were it admitted now."""
    predict: Callable[[RequestView], float]
    """Output tokens the request will have produced when it ends, by the chosen `LengthPredictor`."""
