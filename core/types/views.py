"""What a scheduling policy sees: read-only views of requests, and questions that it can ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from turnout.core.types.request import Request

__all__ = ["KVView", "RequestView", "View", "request_of"]


class RequestView:
    """A request as policies see it. All attributes are read-only; times are seconds on the engine's clock.

    What never changes is stored here and not read from the request: policies read it a thousand times a step.
    """

    __slots__ = (
        "_request",
        "arrival",
        "client",
        "deadline",
        "id",
        "max_tokens",
        "priority",
        "prompt_tokens",
        "ttft_deadline",
    )
    _request: Request
    id: str
    """The request's own, as its answers name it. Each prompt of ``/v1/completions`` is a request, and its id
    ends in the prompt's number: ``cmpl-…-0``."""
    client: str
    """The client: the ``user`` that the request named, else the digest of its API key, else empty."""
    priority: int
    """As the client gave it; lower is more urgent; 0 if not given."""
    arrival: float
    """When the request arrived."""
    deadline: float | None
    """When it should be finished."""
    ttft_deadline: float | None
    """When its first token should be there."""
    prompt_tokens: int
    """The length of the prompt."""
    max_tokens: int
    """Output tokens of one choice, at most."""

    def __init__(self, request: Request) -> None:
        spec, arrival = request.spec, request.timing.arrival
        constants = {
            "_request": request,
            "id": spec.id,
            "client": spec.client,
            "priority": spec.priority,
            "arrival": arrival,
            "deadline": _after(arrival, spec.deadline),
            "ttft_deadline": _after(arrival, spec.ttft_deadline),
            "prompt_tokens": len(spec.prompt),
            "max_tokens": request.limit - len(spec.prompt),
        }
        for name, value in constants.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"policies cannot change a request: {name} is read-only")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"policies cannot change a request: {name} is read-only")

    @property
    def scheduled(self) -> float | None:
        """When it was first admitted."""
        return self._request.timing.scheduled

    @property
    def first_token(self) -> float | None:
        """When its first token came."""
        return self._request.timing.first_token

    @property
    def preemptions(self) -> int:
        """How often it was preempted."""
        return len(self._request.timing.preempted)

    @property
    def prompt(self) -> tuple[int, ...]:
        """Token ids; a copy."""
        return tuple(self._request.spec.prompt)

    @property
    def output_tokens(self) -> int:
        """Tokens produced so far, over all its choices."""
        return self._request.output_tokens

    @property
    def choices(self) -> int:
        """How many live sequences it has at most."""
        return self._request.width

    @property
    def pending(self) -> int:
        """Tokens to compute in this step: all of its prompt at first, one for each choice later."""
        return self._request.pending

    @property
    def decoding(self) -> bool:
        """Whether it needs only its next tokens; if not, a prompt or what a preemption cost is left."""
        return self._request.decode_ready

    def __repr__(self) -> str:
        return repr(self._request)


def _after(arrival: float, seconds: float | None) -> float | None:
    return None if seconds is None else arrival + seconds


def request_of(view: RequestView) -> Request:
    """Returns the request behind a view: for the scheduler, not for policies."""
    return view._request


class KVView(NamedTuple):
    """KV memory as the step begins, in token positions."""

    free: int
    """Positions that could be reserved."""
    capacity: int
    """Positions of the whole pool."""


class View(NamedTuple):
    """What a policy gets when it is asked for an order. Its questions change nothing."""

    now: float
    """Seconds on the engine's clock, the one `RequestView.arrival` was read from."""
    running: tuple[RequestView, ...]
    """In order of admission."""
    waiting: tuple[RequestView, ...]
    """Preempted ones first, then in order of arrival."""
    kv: KVView
    """KV memory as the step begins."""
    fits: Callable[[RequestView], bool]
    """Whether there is room now for all that this request would compute in this step."""
    cached: Callable[[RequestView], int]
    """How many leading tokens of a waiting request would need no compute if it were admitted now."""
    predict: Callable[[RequestView], float]
    """The output tokens that a request will have when it ends, as the chosen `LengthPredictor` guesses."""
