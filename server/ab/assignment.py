"""Which arm a session belongs to: a function of its name and nothing else."""

from __future__ import annotations

from hashlib import blake2b

from starlette.requests import Request

from turnout.core.interfaces.trial import SESSION_HEADER

__all__ = ["place", "session_of"]

REQUEST_HEADER = "X-Request-Id"


def session_of(request: Request, user: str | None, id: str) -> str:
    """What stays together: the session that the client names, else its user, else this request alone.

    A request may have a name too, so that one that is sent again meets the same arm. `id`: the name that the
    server gave it.
    """
    named = (
        ("session", request.headers.get(SESSION_HEADER)),
        ("user", user),
        ("request", request.headers.get(REQUEST_HEADER)),
        ("request", id),
    )
    return next(f"{kind} {name}" for kind, name in named if name)


def place(session: str, test: str) -> float:
    """From 0 up to 1, evenly; the same in every process. Sessions below a share belong to that share.

    So whoever is in an arm stays when its share grows. `test`: the name of the test, so that those who were
    in the arm of one are not all in that of the next.
    """
    salt = blake2b(test.encode(), digest_size=16).digest()
    digest = blake2b(session.encode(errors="replace"), digest_size=8, salt=salt).digest()
    return int.from_bytes(digest, "big") / 2**64
