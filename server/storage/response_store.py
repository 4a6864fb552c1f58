"""Keeps responses, so that clients may go on from them: bounded in number, bytes and age."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from turnout.core import limits
from turnout.core.errors import StorageError
from turnout.server.storage.database import Database

__all__ = ["Bounds", "ChainTooLong", "ResponseStore", "StoredResponse"]

SCHEMA = """
CREATE TABLE IF NOT EXISTS responses (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, previous TEXT, status TEXT NOT NULL, used REAL NOT NULL,
    size INTEGER NOT NULL, body BLOB NOT NULL, input BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS by_use ON responses (used, size);
CREATE TABLE IF NOT EXISTS items (
    owner TEXT NOT NULL, id TEXT NOT NULL, response TEXT NOT NULL, PRIMARY KEY (owner, id, response)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS items_of ON items (response);
CREATE TRIGGER IF NOT EXISTS forget_items AFTER DELETE ON responses
    BEGIN DELETE FROM items WHERE response = OLD.id; END
"""
VERSION = 0x5247_01
DAY = 86_400
ROW = 200
"""Bytes that a response takes beside its texts, about."""
ITEM = 200
"""Bytes that finding an item by its name takes, about."""
FIELDS = "id, owner, previous, status, body, input"


@dataclass(frozen=True)
class StoredResponse:
    """A response, and what it answered."""

    id: str
    owner: str
    """Whose it is: no other client sees it."""
    previous: str | None
    """The response that it goes on from."""
    status: str
    body: bytes
    """JSON, as it was sent."""
    input: bytes
    """The request's own items, as a list in JSON."""

    @cached_property
    def items(self) -> frozenset[str]:
        """The names of the items that it answered and gave. Reads both texts, which may be large."""
        return _names(msgspec.json.decode(self.input, type=list[_Item])) | _names(
            msgspec.json.decode(self.body, type=_Body).output
        )

    @property
    def size(self) -> int:
        return len(self.body) + len(self.input) + ROW


class _Item(msgspec.Struct):
    id: Any = None


class _Body(msgspec.Struct):
    output: list[_Item] = []


def _names(items: Sequence[_Item]) -> frozenset[str]:
    return frozenset(item.id for item in items if isinstance(item.id, str))


@dataclass(frozen=True)
class Bounds:
    """What a store may hold. Beyond them, the responses go that were used longest ago."""

    entries: int
    size: int
    """Bytes."""
    days: float
    """Since a response was stored, or last gone on from."""


class ChainTooLong(Exception):
    """A conversation larger than a request may be."""


class ResponseStore:
    """One file. Every method raises StorageError where the file cannot be used."""

    def __init__(self, path: Path, bounds: Bounds, clock: Callable[[], float] = time.time) -> None:
        """Raises ConfigError for a file that cannot be used."""
        self._database = Database(path, SCHEMA, VERSION)
        self._bounds, self._clock = bounds, clock

    async def put(self, response: StoredResponse) -> None:
        """Stores a response, or its new state. Raises StorageError for one beyond the bounds, too."""
        await self._database.run(lambda connection: self._put(connection, response))

    def _put(self, connection: sqlite3.Connection, new: StoredResponse) -> None:
        size = new.size + ITEM * len(new.items)
        if size > self._bounds.size:
            message = f"the response has {size:,} bytes, more than --response-store-size"
            raise StorageError(message, full=True)
        now = self._now(connection)
        row = (new.id, new.owner, new.previous, new.status, new.body, new.input, now, size)
        connection.execute(
            f"INSERT OR REPLACE INTO responses ({FIELDS}, used, size) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row
        )
        connection.executemany(
            "INSERT OR IGNORE INTO items (owner, id, response) VALUES (?, ?, ?)",
            [(new.owner, item, new.id) for item in new.items],
        )
        self._bound(connection, now)

    def _bound(self, connection: sqlite3.Connection, now: float) -> None:
        connection.execute("DELETE FROM responses WHERE used < ?", (now - self._bounds.days * DAY,))
        count, size = connection.execute("SELECT count(*), sum(size) FROM responses").fetchone()
        while count > self._bounds.entries or size > self._bounds.size:
            (oldest,) = connection.execute("SELECT rowid, size FROM responses ORDER BY used, rowid LIMIT 1")
            connection.execute("DELETE FROM responses WHERE rowid = ?", oldest[:1])
            count, size = count - 1, size - oldest[1]

    def _now(self, connection: sqlite3.Connection) -> float:
        """The time. Uses that lie ahead of it, as after the system's clock went back, count as of now: else a
        new response would be the one that was used longest ago."""
        now = self._clock()
        connection.execute("UPDATE responses SET used = ? WHERE used > ?", (now, now))
        return now

    async def get(self, id: str, owner: str) -> StoredResponse | None:
        """A client's response of this name; None if the client has none."""
        return await self._database.run(lambda connection: self._get(connection, id, owner))

    def _get(self, connection: sqlite3.Connection, id: str, owner: str) -> StoredResponse | None:
        found = connection.execute(
            f"SELECT {FIELDS} FROM responses WHERE id = ? AND owner = ? AND used >= ?",
            (id, owner, self._clock() - self._bounds.days * DAY),
        ).fetchone()
        return found and StoredResponse(*found)

    async def conversation(self, id: str, owner: str, most: int) -> Sequence[StoredResponse] | str:
        """The responses that lead to this one, which comes last; or the name of one that is not there.

        Raises ChainTooLong where they have more than `most` bytes, or are more than a chat has messages.
        """

        def work(connection: sqlite3.Connection) -> Sequence[StoredResponse] | str:
            found: list[StoredResponse] = []
            size, wanted = 0, id
            while wanted:
                each = self._get(connection, wanted, owner)
                if each is None:
                    return wanted
                found.append(each)
                size += each.size
                if size > most or len(found) > limits.MESSAGES.most:
                    raise ChainTooLong
                wanted = each.previous or ""
            self._use(connection, [each.id for each in found])
            return found[::-1]

        return await self._database.run(work)

    async def holding(self, items: Iterable[str], owner: str, most: int) -> Sequence[StoredResponse]:
        """The responses that hold items of a client, the one that was used last for each that is there.

        Raises ChainTooLong where they have more than `most` bytes.
        """

        def work(connection: sqlite3.Connection) -> Sequence[StoredResponse]:
            found: dict[str, StoredResponse] = {}
            held: set[str] = set()
            size = 0
            for item in items:
                if item in held or (each := self._last_with(connection, item, owner)) is None:
                    continue
                found[each.id] = each
                held |= each.items
                size += each.size
                if size > most:
                    raise ChainTooLong
            self._use(connection, found)
            return list(found.values())

        return await self._database.run(work)

    def _last_with(self, connection: sqlite3.Connection, item: str, owner: str) -> StoredResponse | None:
        named = connection.execute(
            "SELECT responses.id FROM items JOIN responses ON responses.id = items.response "
            "WHERE items.owner = ? AND items.id = ? ORDER BY used DESC LIMIT 1",
            (owner, item),
        ).fetchone()
        return named and self._get(connection, named[0], owner)

    def _use(self, connection: sqlite3.Connection, ids: Iterable[str]) -> None:
        now = self._now(connection)
        connection.executemany("UPDATE responses SET used = ? WHERE id = ?", [(now, id) for id in ids])

    async def unfinished(self) -> Sequence[StoredResponse]:
        """Responses that were in progress when a server ended."""
        return await self._database.run(
            lambda connection: [
                StoredResponse(*found)
                for found in connection.execute(
                    f"SELECT {FIELDS} FROM responses WHERE status = 'in_progress'"
                )
            ]
        )

    async def update(self, id: str, owner: str, status: str, body: bytes) -> None:
        """Gives a response its new state, if it is still there.

        Raises StorageError where it has no room for that; the response goes then: its old state would stay.
        """
        found = await self.get(id, owner)
        if found is None:
            return
        try:
            await self.put(replace(found, status=status, body=body))
        except StorageError:
            with suppress(StorageError):  # the first one tells why
                await self.delete(id, owner)
            raise

    async def delete(self, id: str, owner: str) -> bool:
        """Whether the client had a response of this name, which is gone now."""

        def work(connection: sqlite3.Connection) -> bool:
            return (
                connection.execute("DELETE FROM responses WHERE id = ? AND owner = ?", (id, owner)).rowcount
                > 0
            )

        return await self._database.run(work)

    def close(self) -> None:
        self._database.close()
