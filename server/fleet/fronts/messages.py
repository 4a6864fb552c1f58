"""What fronts and the fleet's process say to each other. Each message on the wire is a list of these."""

from __future__ import annotations

import msgspec

from turnout.core.errors import ContextExceeded, Dropped, EngineError, EngineGone, Overloaded, RequestError
from turnout.core.types.logprobs import PackedLogprobs
from turnout.core.types.messages import Abort, Delta, Ready, Submit
from turnout.server.http.errors import ApiError

__all__ = [
    "AskKey",
    "Begin",
    "CloseDoors",
    "Describe",
    "Ended",
    "FrontMessage",
    "Here",
    "KeyAdmitted",
    "KeyRefused",
    "Leave",
    "LeaveKey",
    "Load",
    "Measure",
    "Measured",
    "OwnerMessage",
    "PromptLogprobs",
    "SpendKey",
    "Stop",
    "ended",
    "error_of",
]

# ------------------------------------------------------------------ from a front


class Here(msgspec.Struct, frozen=True, tag=True):
    """The first message: from now on the front hears."""


class Begin(msgspec.Struct, frozen=True, tag=True):
    """Says that the front takes connections."""


class Leave(msgspec.Struct, frozen=True, tag=True):
    """Says that a client has all of a request, or has left; each request ends so."""

    request_id: str


class Load(msgspec.Struct, frozen=True, tag=True):
    """The requests that the front answers, with text, embeddings or scores."""

    requests: int
    waiting: int
    """Those that have got nothing yet."""


class AskKey(msgspec.Struct, frozen=True, tag=True):
    """Asks whether a key may have another request now."""

    id: int
    """Of the request, as the front counts them."""
    digest: bytes
    """Of the key."""


class LeaveKey(msgspec.Struct, frozen=True, tag=True):
    """Says that a request of a key has ended, or is not wanted any more."""

    id: int


class SpendKey(msgspec.Struct, frozen=True, tag=True):
    """Counts tokens for a key."""

    digest: bytes
    tokens: int


class Measured(msgspec.Struct, frozen=True, tag=True):
    """All metrics of the front's requests."""

    figures: bytes
    """As `turnout.server.metrics.figures` writes them."""
    asked: bool = False
    """It answers a `Measure`."""


FrontMessage = Here | Submit | Abort | Begin | Leave | Load | AskKey | LeaveKey | SpendKey | Measured

# ------------------------------------------------------------------ to a front


class Describe(msgspec.Struct, frozen=True, tag=True):
    """What the fleet is, sent when that has changed."""

    ready: Ready
    replicas: int


class PromptLogprobs(msgspec.Struct, frozen=True, tag=True):
    """A prompt's log-probabilities, which come before the request's first delta."""

    request_id: str
    packed: list[bytes]
    """As `PackedLogprobs.parts` has them: they need no time to be decoded."""

    @classmethod
    def of(cls, request_id: str, scores: PackedLogprobs) -> PromptLogprobs:
        return cls(request_id, scores.parts())


class Ended(msgspec.Struct, frozen=True, tag=True):
    """Says that a request has ended: with an error, or because nothing more comes."""

    request_id: str
    kind: str = ""
    """A name in `KINDS`; empty: no error."""
    message: str = ""
    param: str | None = None
    retry_after: float = 1.0


class KeyAdmitted(msgspec.Struct, frozen=True, tag=True):
    """Says that a key may have the request."""

    id: int


class KeyRefused(msgspec.Struct, frozen=True, tag=True):
    """Says that a key may not have the request."""

    id: int
    status: int
    message: str
    code: str | None = None
    headers: dict[str, str] = {}

    @classmethod
    def of(cls, id: int, error: ApiError) -> KeyRefused:
        return cls(id, error.status, str(error), error.code, dict(error.headers or {}))

    @property
    def error(self) -> ApiError:
        return ApiError(self.status, self.message, code=self.code, headers=self.headers)


class Measure(msgspec.Struct, frozen=True, tag=True):
    """Asks for `Measured`."""


class CloseDoors(msgspec.Struct, frozen=True, tag=True):
    """Tells that the server shuts down: requests that come from now on are refused."""


class Stop(msgspec.Struct, frozen=True, tag=True):
    """Tells the front to end, once its clients have what has come."""


OwnerMessage = (
    Delta | PromptLogprobs | Ended | Describe | KeyAdmitted | KeyRefused | Measure | CloseDoors | Stop
)

# ------------------------------------------------------------------ errors

KINDS: dict[str, type[Exception]] = {
    "overloaded": Overloaded,
    "dropped": Dropped,
    "context": ContextExceeded,
    "invalid": RequestError,
    "gone": EngineGone,
    "failed": EngineError,
}
"""Of the errors that requests end with, narrow ones before wide ones."""


def ended(request_id: str, error: Exception | None) -> Ended:
    """The message that a request has ended."""
    if error is None:
        return Ended(request_id)
    kind = next((name for name, known in KINDS.items() if isinstance(error, known)), "failed")
    param, retry = getattr(error, "param", None), getattr(error, "retry_after", 1.0)
    return Ended(request_id, kind, str(error), param, retry)


def error_of(message: Ended) -> Exception | None:
    """The error that a request has ended with; None without one."""
    if not message.kind:
        return None
    if message.kind == "overloaded":
        return Overloaded(message.message, retry_after=message.retry_after)
    kind = KINDS[message.kind]
    if issubclass(kind, RequestError):
        return kind(message.message, message.param)
    return kind(message.message)
