"""Keeps clients' files: contents in a folder, under the server's own names, and what they are in SQLite."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import msgspec

from turnout.core import limits
from turnout.core.errors import ConfigError, Overloaded, StorageError
from turnout.server.storage.database import Database

__all__ = ["FileObject", "FileStore"]

SCHEMA = """
CREATE TABLE IF NOT EXISTS files (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, created INTEGER NOT NULL, content BLOB NOT NULL,
    size INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS batches (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, created INTEGER NOT NULL, content BLOB NOT NULL,
    ended INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS results (
    batch TEXT NOT NULL, line INTEGER NOT NULL, good INTEGER NOT NULL, content BLOB NOT NULL,
    PRIMARY KEY (batch, line)
) WITHOUT ROWID
"""
VERSION = 0x5242_01
DATABASE = "turnout.db"
PREFIX = "file-"
NEW = ".new"
"""At the end of the name of a file that is being written."""


class FileObject(msgspec.Struct):
    """A file of a client."""

    id: str
    bytes: int
    created_at: int
    filename: str
    """As the client named it; the server's own name for it is its id."""
    purpose: str
    """`batch`, or `batch_output` for what a batch has written."""
    object: str = "file"
    status: str = "processed"


@dataclass(frozen=True)
class NewFile:
    """A file that is being written."""

    id: str
    path: Path


class FileStore:
    """A folder. Every method raises StorageError where the folder cannot be used."""

    def __init__(self, folder: Path, most: int, clock: Callable[[], float] = time.time) -> None:
        """most: bytes of all files. Raises ConfigError for a folder that cannot be used."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"the folder {folder} of --batch-dir cannot be made: {error.strerror}"
            ) from None
        self.database = Database(folder / DATABASE, SCHEMA, VERSION)
        self.clock = clock
        self._folder, self._most = folder, most
        self._uploads = 0
        self._clear()

    def _clear(self) -> None:
        """Removes what a server left that ended while it wrote."""
        known = {
            id for (id,) in self.database.at_once(lambda db: db.execute("SELECT id FROM files").fetchall())
        }
        for left in self._folder.glob(f"{PREFIX}*"):
            if left.name not in known:
                left.unlink(missing_ok=True)

    def begin(self) -> NewFile:
        """A place for a new file's content, which `add` then makes a file."""
        id = f"{PREFIX}{uuid4().hex}"
        return NewFile(id, self._folder / f"{id}{NEW}")

    @contextmanager
    def uploaded(self) -> Iterator[NewFile]:
        """A place for a file that a client sends; what is not made a file goes. Raises Overloaded."""
        if self._uploads >= limits.UPLOADS.most:
            raise Overloaded(f"{self._uploads} files are being sent, the most there may be; retry later")
        self._uploads += 1
        new = self.begin()
        try:
            yield new
        finally:
            self._uploads -= 1
            new.path.unlink(missing_ok=True)

    async def add(self, new: NewFile, owner: str, filename: str, purpose: str) -> FileObject:
        """Makes a file of what has been written."""
        try:
            return await self.database.run(
                lambda connection: self.put(connection, new, owner, filename, purpose)
            )
        except StorageError:
            self.discard([new])
            raise

    def put(
        self, connection: sqlite3.Connection, new: NewFile, owner: str, filename: str, purpose: str
    ) -> FileObject:
        """As `add`, within a transaction."""
        size = new.path.stat().st_size
        if purpose == "batch":
            self.check_room(connection, size)
        found = FileObject(new.id, size, int(self.clock()), filename, purpose)
        row = (found.id, owner, found.created_at, msgspec.json.encode(found), size)
        connection.execute("INSERT INTO files VALUES (?, ?, ?, ?, ?)", row)
        os.replace(new.path, self.path(found.id))
        return found

    def discard(self, files: Iterable[NewFile]) -> None:
        """Removes what was written for files that could not be made: a full disk would stay full of it."""
        for new in files:
            new.path.unlink(missing_ok=True)
            self.path(new.id).unlink(missing_ok=True)

    def check_room(self, connection: sqlite3.Connection, size: int = 1) -> None:
        """Raises StorageError where there is no room for another file of `size` bytes that a client wants.

        What batches write that were begun before is kept, even beyond that.
        """
        count, total = connection.execute("SELECT count(*), coalesce(sum(size), 0) FROM files").fetchone()
        if count >= limits.FILES.most:
            raise StorageError(
                f"there are {count:,} files, the most that there may be; delete some", full=True
            )
        if total + size > self._most:
            raise StorageError(
                f"the files have {total:,} bytes, and --batch-dir-size allows {self._most:,}; delete some",
                full=True,
            )

    def path(self, id: str) -> Path:
        """Where a file's content lies, whose id comes from this store."""
        return self._folder / id

    async def get(self, id: str, owner: str) -> FileObject | None:
        """A client's file of this id; None if the client has none."""

        def work(connection: sqlite3.Connection) -> FileObject | None:
            query = "SELECT content FROM files WHERE id = ? AND owner = ?"
            found = connection.execute(query, (id, owner)).fetchone()
            return found and msgspec.json.decode(found[0], type=FileObject)

        return await self.database.run(work)

    async def list(self, owner: str) -> Sequence[FileObject]:
        """A client's files, oldest first."""

        def work(connection: sqlite3.Connection) -> Sequence[FileObject]:
            query = "SELECT content FROM files WHERE owner = ? ORDER BY rowid"
            return [
                msgspec.json.decode(row[0], type=FileObject) for row in connection.execute(query, (owner,))
            ]

        return await self.database.run(work)

    async def delete(self, id: str, owner: str) -> bool:
        """Whether the client had a file of this id, which is gone now."""

        def work(connection: sqlite3.Connection) -> bool:
            query = "DELETE FROM files WHERE id = ? AND owner = ?"
            if not connection.execute(query, (id, owner)).rowcount:
                return False
            self.path(id).unlink(missing_ok=True)
            return True

        return await self.database.run(work)

    def close(self) -> None:
        self.database.close()
