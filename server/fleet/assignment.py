"""Assigns sessions to arms. The assignment is a function of the session's name alone."""

from __future__ import annotations

from hashlib import blake2b

from starlette.requests import Request

from turnout.core.interfaces.trial import SESSION_HEADER
from turnout.server.http.errors import REQUEST_ID

__all__ = ["named_session", "session_of", "session_position"]


def named_session(name: str) -> str:
    """The session that a client names in `SESSION_HEADER`."""
    return f"session {name}"


def session_of(request: Request, user: str | None, id: str) -> str:
    """The session that a request belongs to: the one it names, else its user, else the request by itself.

    A client may name the request, so that a repeated request meets the same arm. `id` is the server's name
    for it.
    """
    named = (
        ("session", request.headers.get(SESSION_HEADER)),
        ("user", user),
        ("request", request.headers.get(REQUEST_ID)),
        ("request", id),
    )
    return next(f"{kind} {name}" for kind, name in named if name)


def session_position(session: str, test: str) -> float:
    """A session's position in [0, 1), evenly distributed and the same in every process.

    Sessions whose position is below an arm's share belong to that arm, so a session stays in its arm when the
    share grows. `test` is the test's name: two tests do not put the same sessions into their arms.
    """
    salt = blake2b(test.encode(), digest_size=16).digest()
    digest = blake2b(session.encode(errors="replace"), digest_size=8, salt=salt).digest()
    return int.from_bytes(digest, "big") / 2**64
