"""What is noted of a request while it is served, for the access log and for traces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol

from starlette.types import Scope

from turnout.core.types.request import RequestSpec, Traced

__all__ = [
    "Answered",
    "RequestRecord",
    "Write",
    "note_answer",
    "note_error",
    "note_model",
    "record_of",
    "tracing",
]

RECORD = "turnout.record"
"""Where a request's scope has its record."""
CLIENT_LEFT = 499

tracing: ContextVar[bool] = ContextVar("turnout.tracing", default=False)
"""Whether the request that this task serves is to be traced."""


class Answered(Protocol):
    """What an engine does for a request, as far as it has come."""

    error: str
    """Why it failed, as one word; empty: it has not."""
    first_token_at: float | None
    """When the first token came, on the clock of the record; None: there is none."""

    @property
    def requests(self) -> Sequence[RequestSpec]:
        """The requests to engines, one for each prompt."""
        ...

    @property
    def traces(self) -> Mapping[str, Sequence[Traced]]:
        """What engines told of those, by id; of one that was moved, each that served it."""
        ...

    @property
    def prompt_tokens(self) -> int: ...

    @property
    def completion_tokens(self) -> int: ...

    @property
    def cached_tokens(self) -> int: ...

    @property
    def finish_reasons(self) -> Sequence[str]:
        """Of the choices, as far as they have ended; ``abort`` of the others."""
        ...

    def prompt_texts(self, longest: int | None) -> list[str]:
        """The prompts as the model got them, each cut to so many characters."""
        ...


@dataclass(slots=True)
class RequestRecord:
    """A request that is being served, or has been. Times are in seconds, on a monotonic clock."""

    method: str
    path: str
    arrival: float
    id: str = ""
    """As ``X-Request-Id`` has it."""
    status: int = 0
    """0: nothing was sent."""
    key: str = ""
    """The name of the key that it came with."""
    model: str = ""
    """The name of the model that serves it."""
    error: str = ""
    """Why it was refused or failed, as one word: never with what the client sent."""
    batch: str = ""
    """The batch that it is a line of."""
    background: bool = False
    """It is what went on for a request after its client had its response."""
    traced: bool = False
    """It is to be traced."""
    trace_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Those headers that name the trace of which the client made it a part."""
    finished: float = 0.0
    answer: Answered | None = field(default=None, repr=False)

    @property
    def duration(self) -> float:
        return self.finished - self.arrival

    @property
    def first_token(self) -> float | None:
        """Seconds from its arrival to its first token; None: there was none."""
        at = None if self.answer is None else self.answer.first_token_at
        return None if at is None else at - self.arrival

    @property
    def ended(self) -> str:
        """Why it ended: the reasons of its choices, the error, or ``abort`` where the client left."""
        error = self.error or (self.answer.error if self.answer is not None else "")
        if error or self.status == CLIENT_LEFT:
            return error or "abort"
        if self.answer is None:
            return ""
        return ",".join(dict.fromkeys(self.answer.finish_reasons))


Write = Callable[[RequestRecord], None]
"""Told of each request that has ended."""


def record_of(scope: Scope) -> RequestRecord | None:
    """The record of a request; None where none is kept."""
    record: RequestRecord | None = scope.get(RECORD)
    return record


def note_answer(scope: Scope, answer: Answered) -> None:
    """Note what an engine does for a request."""
    if (record := record_of(scope)) is not None:
        record.answer = answer


def note_model(scope: Scope, model: str) -> None:
    """Note which model serves a request."""
    if (record := record_of(scope)) is not None:
        record.model = model


def note_error(scope: Scope, error: str) -> None:
    """Note why a request was refused, or failed."""
    if (record := record_of(scope)) is not None:
        record.error = error
