"""The header by which a client shows its key."""

from __future__ import annotations

from turnout.core.errors import ConfigError

__all__ = ["authorization"]


def authorization(key: str | None) -> dict[str, str]:
    """The `Authorization` header, or no header without a key.

    Whitespace around the key is left out: a variable that was read from a file may end in a line break.
    Raises ConfigError for a key with a character that no header can have.
    """
    key = (key or "").strip()
    for place, character in enumerate(key, 1):
        if not character.isprintable():
            raise ConfigError(
                f"the key (--api-key, --admin-key, or their variables) has {character!a} as character "
                f"{place} of {len(key)}; a key has printable characters only: give the key alone, on one line"
            )
    return {"Authorization": f"Bearer {key}"} if key else {}
