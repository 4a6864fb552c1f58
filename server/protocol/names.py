"""Names that clients give and the server keeps: of users, and of those who share computed prefixes."""

from __future__ import annotations

import hashlib

from turnout.core import limits

__all__ = ["bounded_name"]


def bounded_name(name: str | None) -> str:
    """A name, or a digest in place of a long one; empty for none. Equal names stay equal."""
    if name is None or len(name) <= limits.NAME.most:
        return name or ""
    return f"sha256-{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()}"
