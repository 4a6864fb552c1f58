"""The header by which a client shows its key."""

from __future__ import annotations

from turnout.core.api_keys import sendable_key

__all__ = ["authorization"]


def authorization(key: str | None) -> dict[str, str]:
    """The `Authorization` header, or no header without a key. Raises ConfigError as `sendable_key` does."""
    key = sendable_key(key or "", "--api-key, --admin-key, or their variables")
    return {"Authorization": f"Bearer {key}"} if key else {}
