"""A SQLite file and the one thread that uses it, so that the event loop never waits for a disk."""

from __future__ import annotations

import asyncio
import errno
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from turnout.core.errors import ConfigError, StorageError

__all__ = ["Database"]

T = TypeVar("T")
WAIT_SECONDS = 1.0
"""How long to wait for another process that has the file open."""
REASONS = {
    sqlite3.SQLITE_FULL: "cannot grow: the disk is full; make room on it",
    sqlite3.SQLITE_CORRUPT: "is damaged; move it away and start the server again",
    sqlite3.SQLITE_NOTADB: "is no SQLite file; name another, or move it away",
    sqlite3.SQLITE_BUSY: "is in use by another process; give each server a file of its own",
    sqlite3.SQLITE_READONLY: "cannot be written",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; its folder must exist and be writable",
    sqlite3.SQLITE_IOERR: "cannot be read or written: its disk reports an error",
}


class Database:
    """Opened when constructed; every use is a transaction."""

    def __init__(self, path: Path, schema: str, version: int) -> None:
        """`schema` makes the tables of a new file; a file of another `version` is refused.

        Raises ConfigError.
        """
        self._path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="database")
        try:
            self._connection = self._thread.submit(self._open, schema, version).result()
        except sqlite3.Error as error:
            raise ConfigError(str(self._explained(error))) from None

    def _open(self, schema: str, version: int) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=WAIT_SECONDS)
        try:
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            (found,) = connection.execute("PRAGMA user_version").fetchone()
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            if tables and found != version:
                raise ConfigError(
                    f"{self._path} holds something else than expected here (version {found}, not {version}); "
                    "name another file"
                )
            with connection:  # takes the lock, in a file that has its tables too
                connection.executescript(f"BEGIN; {schema}; PRAGMA user_version={version}; COMMIT;")
            (state,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if state != "ok":
                raise sqlite3.DatabaseError(state)
        except BaseException:
            connection.close()
            raise
        return connection

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """The result of `work`, which takes effect as a whole or not at all. Raises StorageError."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._transaction, work)

    def at_once(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """As `run`, for a server that does not serve yet."""
        return self._thread.submit(self._transaction, work).result()

    def _transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with self._connection:
                return work(self._connection)
        except sqlite3.Error as error:
            raise self._explained(error) from None
        except OSError as error:  # of a file beside it
            full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            message = f"a file beside {self._path} cannot be written: {error.strerror}"
            raise StorageError(message, full=full) from None

    def _explained(self, error: sqlite3.Error) -> StorageError:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF  # of an extended code
        reason = REASONS.get(code, f"cannot be used: {error}")
        return StorageError(f"{self._path} {reason}", full=code == sqlite3.SQLITE_FULL)

    def close(self) -> None:
        """Closes the file, after what is still being done."""
        self._thread.submit(self._connection.close).result()
        self._thread.shutdown()
