"""Which keys a client can send, and so a server may accept."""

from __future__ import annotations

from turnout.core.errors import ConfigError

__all__ = ["sendable_key"]


def sendable_key(key: str, given: str) -> str:
    """Returns the key without whitespace around it: a variable from a file may end in a line break.

    given: where the key comes from, for the message. Raises ConfigError, whose message does not show the key,
    for a character that no header can have.
    """
    key = key.strip()
    for place, character in enumerate(key, 1):
        if not character.isprintable():
            raise ConfigError(
                f"the key ({given}) has {character!a} as character {place} of {len(key)}; a key has "
                "printable characters only: give the key alone, on one line"
            )
    return key
