"""Which keys a client can send, and so a server may accept; and whether a file keeps its keys secret."""

from __future__ import annotations

import logging
import shlex
import stat
from pathlib import Path

from turnout.core.errors import ConfigError

__all__ = ["sendable_key", "warn_if_open"]

logger = logging.getLogger(__name__)


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


def warn_if_open(path: str) -> None:
    """Warns of a file of keys that every user of this machine can read, as ssh does."""
    try:
        file = Path(path).resolve()
        read = file.stat().st_mode & stat.S_IROTH
        reached = all(folder.stat().st_mode & stat.S_IXOTH for folder in file.parents)
    except OSError:  # one that cannot be read is told elsewhere
        return
    if read and reached:
        logger.warning(
            "every user of this machine can read the keys in %s; keep them out: chmod 600 %s",
            path,
            shlex.quote(path),
        )
