"""The keys that clients may send: from flags, files or the environment, each with a name and limits."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from turnout.config import ServerConfig
from turnout.core.api_keys import warn_if_open
from turnout.core.clock import monotonic
from turnout.core.errors import ConfigError
from turnout.server.http.access.key_file import KeyEntry, read_key_file, valid_key
from turnout.server.http.access.key_usage import KeyUsage

__all__ = ["ADMIN_KEY_VARIABLE", "API_KEY_VARIABLE", "Key", "Keys", "check_keys", "name_of"]

logger = logging.getLogger(__name__)

API_KEY_VARIABLE = "TURNOUT_API_KEY"
ADMIN_KEY_VARIABLE = "TURNOUT_ADMIN_KEY"
LOOK_SECONDS = 1.0
"""How often to look whether a file has changed."""


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
    """The accepted keys of one kind. Their file is read again when it has changed."""

    def __init__(
        self,
        read: Callable[[], list[KeyEntry]],
        file: str | None = None,
        usage: Callable[[bytes], KeyUsage] | None = None,
    ) -> None:
        """usage: makes what counts for a key, from its digest; None: this process counts."""
        self._read, self._file = read, file
        self._usage = usage or (lambda _: KeyUsage())
        self._state = _state_of(file)
        self._looked = monotonic()
        self._keys = [_key(entry, self._usage) for entry in read()]

    def __bool__(self) -> bool:
        return bool(self._keys)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._keys)

    def refresh(self) -> None:
        """Read the file again if it has changed, at most once a second.

        A key that stays keeps what it has used. Where the file cannot be used, the keys stay as they are.
        """
        if self._file is not None and monotonic() - self._looked >= LOOK_SECONDS:
            self._read_again()

    def _read_again(self) -> None:
        self._looked, before = monotonic(), self._state
        self._state = _state_of(self._file)
        if self._state == before:
            return
        try:
            entries = self._read()
        except ConfigError as error:
            logger.error("the keys stay as they were: %s", error)
            return
        known = {key.digest: key.usage for key in self._keys}
        self._keys = [_key(entry, self._usage, known) for entry in entries]
        gone = len(known.keys() - {key.digest for key in self._keys})
        added = len(self._keys) - len(known) + gone
        logger.info("%s was read again: %d keys, %d new, %d gone", self._file, len(self._keys), added, gone)

    @classmethod
    def for_api(cls, config: ServerConfig, usage: Callable[[bytes], KeyUsage] | None = None) -> Keys:
        """The API keys. Raises ConfigError."""
        read = partial(_entries, "--api-key", config.api_key, config.api_key_file, API_KEY_VARIABLE)
        return cls(read, config.api_key_file, usage)

    @classmethod
    def for_admin(cls, config: ServerConfig) -> Keys:
        """The admin keys. Raises ConfigError."""
        read = partial(_entries, "--admin-key", config.admin_key, config.admin_key_file, ADMIN_KEY_VARIABLE)
        return cls(read, config.admin_key_file)

    def find(self, token: bytes) -> Key | None:
        """The key that `token` is. The time that it takes tells nothing of the keys."""
        digest, found = _digest(token), None
        for key in self._keys:
            if hmac.compare_digest(digest, key.digest):
                found = key
        return found

    def by_name(self, name: str) -> Key | None:
        """The key of a name, as the file is now; None: there is none, or it is gone."""
        self.refresh()
        return next((key for key in self._keys if key.name == name), None)

    def by_digest(self, digest: bytes) -> Key | None:
        """The key of a digest that another process has read, maybe from a file that has just changed."""
        for _ in range(2):
            for key in self._keys:
                if key.digest == digest:
                    return key
            if self._file is not None:
                self._read_again()
        return None


def check_keys(config: ServerConfig) -> None:
    """Raises ConfigError for keys that cannot be read, which need not wait for the model.

    Warns of files whose keys are no secret.
    """
    Keys.for_api(config)
    Keys.for_admin(config)
    files = (
        config.api_key_file,
        config.admin_key_file,
        config.replica_key_file,
        config.ssl_keyfile or config.ssl_certfile,
    )
    for file in filter(None, dict.fromkeys(files)):
        warn_if_open(file)


def name_of(token: bytes) -> str:
    """A name for a key that has none; empty without a key."""
    return f"key-{_digest(token).hex()[:16]}" if token else ""


def _entries(
    option: str,
    given: Sequence[str],
    file: str | None,
    variable: str,
    environment: Mapping[str, str] = os.environ,
) -> list[KeyEntry]:
    """The environment counts where neither a flag nor a file gives a key."""
    entries = [KeyEntry(key=valid_key(key, option)) for key in given]
    if file is not None:
        entries += read_key_file(file)
    if not entries and (key := environment.get(variable)):
        entries = [KeyEntry(key=valid_key(key, variable))]
    if (repeated := _repeated(entries)) is not None:
        where = f"in {file} and on the command line together" if given and file else f"in {file or 'flags'}"
        raise ConfigError(f"{repeated} is given twice {where}; give each once")
    return entries


def _repeated(entries: Sequence[KeyEntry]) -> str | None:
    """The key or name that two entries have, in words that do not tell the key; None: there is none."""
    keys: dict[str, KeyEntry] = {}
    names: set[str] = set()
    for entry in entries:
        if (first := keys.setdefault(entry.key, entry)) is not entry:
            having = [repr(name) for name in (first.name, entry.name) if name is not None]
            return f"the key of {' and '.join(having)}" if having else "a key of API or admin keys"
        if entry.name in names:
            return f"the name {entry.name!r} of API or admin keys"
        names |= {entry.name} if entry.name is not None else set()
    return None


def _key(
    entry: KeyEntry, made: Callable[[bytes], KeyUsage], known: Mapping[bytes, KeyUsage] | None = None
) -> Key:
    token = entry.key.encode()
    digest = _digest(token)
    usage = (known or {}).get(digest) or made(digest)
    usage.limit(entry.requests_in_flight, entry.requests_per_minute, entry.tokens_per_minute)
    return Key(entry.name or name_of(token), entry.name is not None, digest, usage)


def _state_of(file: str | None) -> tuple[int, ...]:
    """What changes with a file; empty if there is none."""
    try:
        found = os.stat(file) if file is not None else None
    except OSError:
        return ()
    return () if found is None else (found.st_mtime_ns, found.st_size, found.st_ino)


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
