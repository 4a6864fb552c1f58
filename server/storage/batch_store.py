"""Keeps batches and the results of their lines, so that a batch goes on where it was after a restart."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import uuid4

import msgspec

from turnout.core import limits
from turnout.core.errors import Overloaded, StorageError
from turnout.server.storage.file_store import FileStore, NewFile

__all__ = [
    "ENDED",
    "Batch",
    "BatchErrors",
    "BatchStore",
    "LineError",
    "LineResult",
    "OwnedBatch",
    "RequestCounts",
]

ENDED = ("completed", "failed", "cancelled", "expired")
WINDOW = 24 * 3600
"""Seconds that a batch may take."""


class RequestCounts(msgspec.Struct):
    """How many lines of a batch there are, and how many have an answer or an error."""

    total: int = 0
    completed: int = 0
    failed: int = 0


class LineError(msgspec.Struct):
    """What is wrong with an input file."""

    code: str
    message: str
    line: int | None = None
    """From 1 on."""
    param: str | None = None


class BatchErrors(msgspec.Struct):
    """Why a batch has failed before it began."""

    data: list[LineError]
    object: str = "list"


class Batch(msgspec.Struct, kw_only=True):
    """Many requests, given as lines of a file, that are answered when there is room for them."""

    id: str
    object: str = "batch"
    endpoint: str
    """The path that all lines are for."""
    errors: BatchErrors | None = None
    input_file_id: str
    completion_window: str
    status: str = "validating"
    """`validating`, `in_progress`, `finalizing`, `cancelling`, and at the end `completed`, `failed`,
    `cancelled` or `expired`."""
    output_file_id: str | None = None
    """The answers, one line each."""
    error_file_id: str | None = None
    """The lines that were refused or not answered."""
    created_at: int
    in_progress_at: int | None = None
    expires_at: int
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    request_counts: RequestCounts = msgspec.field(default_factory=RequestCounts)
    metadata: dict[str, str] | None = None


@dataclass(frozen=True)
class OwnedBatch:
    """A batch, and whose it is."""

    batch: Batch
    owner: str


class LineResult(NamedTuple):
    """What came of a line."""

    line: int
    good: bool
    """It was answered, not refused."""
    content: bytes
    """The line of the output or error file."""


class BatchStore:
    """In the database of the files. Every method raises StorageError where it cannot be used."""

    def __init__(self, files: FileStore) -> None:
        self._files, self._database = files, files.database

    def now(self) -> int:
        """In seconds since 1970."""
        return int(self._files.clock())

    async def create(
        self, owner: str, endpoint: str, input_file: str, window: str, metadata: dict[str, str] | None
    ) -> Batch:
        """Raises Overloaded where too many have not ended, StorageError where its files have no room."""
        now = self.now()
        batch = Batch(
            id=f"batch_{uuid4().hex}",
            endpoint=endpoint,
            input_file_id=input_file,
            completion_window=window,
            created_at=now,
            expires_at=now + WINDOW,
            metadata=metadata,
        )

        def work(connection: sqlite3.Connection) -> None:
            self._files.check_room(connection)
            (waiting,) = connection.execute("SELECT count(*) FROM batches WHERE NOT ended").fetchone()
            if waiting >= limits.BATCHES.most:
                raise Overloaded(f"{waiting} batches have not ended, the most that there may be; retry later")
            (kept,) = connection.execute("SELECT count(*) FROM batches").fetchone()
            if kept >= limits.BATCHES_KEPT.most:
                connection.execute(
                    "DELETE FROM batches WHERE rowid = (SELECT min(rowid) FROM batches WHERE ended)"
                )
            row = (batch.id, owner, now, msgspec.json.encode(batch), False)
            connection.execute("INSERT INTO batches VALUES (?, ?, ?, ?, ?)", row)

        await self._database.run(work)
        return batch

    async def get(self, id: str, owner: str) -> Batch | None:
        """A client's batch of this id; None if the client has none."""

        def work(connection: sqlite3.Connection) -> Batch | None:
            query = "SELECT content FROM batches WHERE id = ? AND owner = ?"
            found = connection.execute(query, (id, owner)).fetchone()
            return found and _counted(connection, msgspec.json.decode(found[0], type=Batch))

        return await self._database.run(work)

    async def list(self, owner: str) -> Sequence[Batch]:
        """A client's batches, oldest first."""

        def work(connection: sqlite3.Connection) -> Sequence[Batch]:
            query = "SELECT content FROM batches WHERE owner = ? ORDER BY rowid"
            rows = connection.execute(query, (owner,)).fetchall()
            return [_counted(connection, msgspec.json.decode(row[0], type=Batch)) for row in rows]

        return await self._database.run(work)

    async def next(
        self, beside: Sequence[OwnedBatch] = (), *, only_to_end: bool = False
    ) -> OwnedBatch | None:
        """The oldest batch that has not ended, and can be served beside others.

        Those of other clients can be, and those of the same clients that are only to be ended. only_to_end:
        none but such as are to be ended, since they were cancelled or are late.
        """
        served, owners = {owned.batch.id for owned in beside}, {owned.owner for owned in beside}

        def work(connection: sqlite3.Connection) -> OwnedBatch | None:
            query = "SELECT content, owner FROM batches WHERE NOT ended ORDER BY rowid"
            for content, owner in connection.execute(query):
                batch = msgspec.json.decode(content, type=Batch)
                to_end = batch.status == "cancelling" or self.now() >= batch.expires_at
                may_begin = owner not in owners and not only_to_end
                if batch.id not in served and (may_begin or to_end):
                    return OwnedBatch(batch, owner)
            return None

        return await self._database.run(work)

    async def change(self, id: str, **changes: object) -> Batch:
        """Changes fields of a batch; one that is being cancelled stays so until it has ended."""
        return await self._database.run(lambda connection: _change(connection, id, changes))

    async def cancel(self, id: str) -> Batch:
        """Begins to cancel a batch; one that has ended stays as it is."""

        def work(connection: sqlite3.Connection) -> Batch:
            batch = _batch(connection, id)
            if batch.status in (*ENDED, "cancelling"):
                return _counted(connection, batch)
            return _change(connection, id, {"status": "cancelling", "cancelling_at": self.now()})

        return await self._database.run(work)

    async def answered(self, id: str) -> set[int]:
        """The numbers of the lines that have a result."""
        query = "SELECT line FROM results WHERE batch = ?"
        return await self._database.run(
            lambda connection: {line for (line,) in connection.execute(query, (id,))}
        )

    async def add(self, id: str, results: Sequence[LineResult]) -> None:
        """Keeps results. A line that has one keeps it."""
        await self._database.run(lambda connection: _add(connection, id, results))

    async def end(
        self,
        owned: OwnedBatch,
        status: str,
        errors: BatchErrors | None = None,
        rest: Sequence[LineResult] = (),
    ) -> Batch:
        """Writes the results into files, after it has kept the `rest`, and ends a batch: all of it, or
        nothing."""
        made: list[NewFile] = []

        def work(connection: sqlite3.Connection) -> Batch:
            _add(connection, owned.batch.id, rest)
            batch = _counted(connection, _batch(connection, owned.batch.id))
            fields: dict[str, object] = {"status": status, f"{status}_at": self.now(), "errors": errors}
            for field, good in (("output_file_id", True), ("error_file_id", False)):
                new = self._files.begin()
                made.append(new)
                if _write(connection, batch.id, good, new):
                    name = f"{batch.id}_{'output' if good else 'error'}.jsonl"
                    fields[field] = self._files.put(connection, new, owned.owner, name, "batch_output").id
            fields["request_counts"] = batch.request_counts
            connection.execute("DELETE FROM results WHERE batch = ?", (batch.id,))
            return _change(connection, batch.id, fields)

        try:
            return await self._database.run(work)
        except StorageError:
            self._files.discard(made)
            raise


def _batch(connection: sqlite3.Connection, id: str) -> Batch:
    (content,) = connection.execute("SELECT content FROM batches WHERE id = ?", (id,)).fetchone()
    return msgspec.json.decode(content, type=Batch)


def _add(connection: sqlite3.Connection, id: str, results: Sequence[LineResult]) -> None:
    rows = [(id, *result) for result in results]
    connection.executemany("INSERT OR IGNORE INTO results VALUES (?, ?, ?, ?)", rows)


def _change(connection: sqlite3.Connection, id: str, changes: dict[str, object]) -> Batch:
    batch = _batch(connection, id)
    status = changes.get("status", batch.status)
    if batch.status == "cancelling" and status not in ENDED:
        changes = {**changes, "status": "cancelling"}
    changed = msgspec.structs.replace(batch, **changes)
    row = (msgspec.json.encode(changed), changed.status in ENDED, id)
    connection.execute("UPDATE batches SET content = ?, ended = ? WHERE id = ?", row)
    return _counted(connection, changed)


def _counted(connection: sqlite3.Connection, batch: Batch) -> Batch:
    """A batch with its counts as they are now."""
    if batch.status in ENDED:
        return batch
    query = "SELECT coalesce(sum(good), 0), count(*) FROM results WHERE batch = ?"
    good, ended = connection.execute(query, (batch.id,)).fetchone()
    counts = RequestCounts(batch.request_counts.total, good, ended - good)
    return msgspec.structs.replace(batch, request_counts=counts)


def _write(connection: sqlite3.Connection, id: str, good: bool, new: NewFile) -> bool:
    """Whether there was anything to write."""
    query = "SELECT content FROM results WHERE batch = ? AND good = ? ORDER BY line"
    rows = connection.execute(query, (id, good))
    first = rows.fetchone()
    if first is None:
        return False
    with new.path.open("wb") as file:
        file.write(first[0] + b"\n")
        for (content,) in rows:
            file.write(content + b"\n")
    return True
