"""The keys that clients may send: from flags, files or the environment, each with a name and limits."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from turnout.config import ServerConfig
from turnout.core.errors import ConfigError
from turnout.server.http.access.key_file import KeyEntry, read_key_file
from turnout.server.http.access.key_usage import KeyUsage

__all__ = ["ADMIN_KEY_VARIABLE", "API_KEY_VARIABLE", "Key", "Keys", "check_keys", "name_of"]

API_KEY_VARIABLE = "TURNOUT_API_KEY"
ADMIN_KEY_VARIABLE = "TURNOUT_ADMIN_KEY"


@dataclass(frozen=True)
class Key:
    """A key that is accepted."""

    name: str
    """What policies and the log see as the client; a hash of the key if it has no name."""
    named: bool
    """The operator gave it its name."""
    digest: bytes
    usage: KeyUsage


class Keys:
    """The accepted keys of one kind."""

    def __init__(self, entries: Iterable[KeyEntry]) -> None:
        self._keys = [_key(entry) for entry in entries]

    def __bool__(self) -> bool:
        return bool(self._keys)

    @classmethod
    def for_api(cls, config: ServerConfig) -> Keys:
        """The API keys. Raises ConfigError."""
        return cls(_entries(config.api_key, config.api_key_file, API_KEY_VARIABLE))

    @classmethod
    def for_admin(cls, config: ServerConfig) -> Keys:
        """The admin keys. Raises ConfigError."""
        return cls(_entries(config.admin_key, config.admin_key_file, ADMIN_KEY_VARIABLE))

    def find(self, token: bytes) -> Key | None:
        """The key that `token` is. The time that it takes tells nothing of the keys."""
        digest, found = _digest(token), None
        for key in self._keys:
            if hmac.compare_digest(digest, key.digest):
                found = key
        return found


def check_keys(config: ServerConfig) -> None:
    """Raises ConfigError for keys that cannot be read, which need not wait for the model."""
    Keys.for_api(config)
    Keys.for_admin(config)


def name_of(token: bytes) -> str:
    """A name for a key that has none; empty without a key."""
    return f"key-{_digest(token).hex()[:16]}" if token else ""


def _entries(
    given: Sequence[str], file: str | None, variable: str, environment: Mapping[str, str] = os.environ
) -> list[KeyEntry]:
    """The environment counts where neither a flag nor a file gives a key."""
    entries = [KeyEntry(key=key) for key in given]
    if file is not None:
        entries += read_key_file(file)
    if not entries and (key := environment.get(variable)):
        entries = [KeyEntry(key=key)]
    for what, values in (
        ("key", [entry.key for entry in entries]),
        ("name", [entry.name for entry in entries if entry.name is not None]),
    ):
        if len(set(values)) < len(values):
            where = (
                f"in {file} and on the command line together" if given and file else f"in {file or 'flags'}"
            )
            raise ConfigError(f"a {what} of API or admin keys is given twice {where}; give each once")
    return entries


def _key(entry: KeyEntry) -> Key:
    token = entry.key.encode()
    usage = KeyUsage(
        in_flight=entry.requests_in_flight,
        requests_per_minute=entry.requests_per_minute,
        tokens_per_minute=entry.tokens_per_minute,
    )
    return Key(entry.name or name_of(token), entry.name is not None, _digest(token), usage)


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
