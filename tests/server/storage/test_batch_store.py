"""Files and batches are kept whole: what a server left half written goes, and a line has one result."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Coroutine, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from starlette.requests import Request
from starlette.responses import StreamingResponse

from turnout.core import limits
from turnout.core.errors import Overloaded, StorageError
from turnout.server.api.batches.files import show_content
from turnout.server.storage.batch_store import Batch, BatchStore, LineResult, OwnedBatch
from turnout.server.storage.file_store import FileObject, FileStore

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


@pytest.fixture
def files(tmp_path: Path) -> Iterator[FileStore]:
    with closing(FileStore(tmp_path / "batches", 1000)) as files:
        yield files


@pytest.fixture
def batches(files: FileStore) -> BatchStore:
    return BatchStore(files)


def add(files: FileStore, content: bytes = b"{}") -> FileObject:
    with files.uploaded() as new:
        new.path.write_bytes(content)
        return run(files.add(new, "me", "in.jsonl", "batch"))


def begin(batches: BatchStore) -> OwnedBatch:
    return OwnedBatch(run(batches.create("me", "/v1/completions", "file-1", "24h", None)), "me")


def contents(files: FileStore, id: str | None) -> bytes:
    return files.path(id).read_bytes() if id else b""


def test_files_are_bounded_together(files: FileStore) -> None:
    first = add(files, b"x" * 900)
    with pytest.raises(StorageError, match="--batch-dir-size allows 1,000") as full:
        add(files, b"x" * 200)
    assert full.value.full
    assert run(files.delete(first.id, "me")) and not run(files.delete(first.id, "me"))
    assert contents(files, add(files, b"x" * 200).id) == b"x" * 200


def test_no_batch_begins_where_its_output_has_no_room(files: FileStore, batches: BatchStore) -> None:
    """One file, asked for again and again, filled the disk. A batch that has begun is kept whole."""
    owned, given = begin(batches), add(files, b"x" * 900)
    run(batches.add(owned.batch.id, [LineResult(0, True, b"y" * 200)]))
    run(batches.end(owned, "completed"))
    with pytest.raises(StorageError, match="the files have 1,101 bytes, and --batch-dir-size allows 1,000"):
        begin(batches)
    assert run(files.delete(given.id, "me"))
    begin(batches)


def test_uploads_at_once_are_bounded(files: FileStore) -> None:
    def uploads(left: int) -> None:
        with files.uploaded():
            if left:
                uploads(left - 1)

    uploads(limits.UPLOADS.whole - 1)
    with pytest.raises(Overloaded, match="4 files are being sent"):
        uploads(limits.UPLOADS.whole)
    uploads(0)


def test_what_was_left_half_written_goes(tmp_path: Path) -> None:
    folder = tmp_path / "batches"
    with closing(FileStore(folder, 1000)) as files:
        kept = add(files)
    (folder / "file-left.new").write_bytes(b"half")
    (folder / "file-without-a-row").write_bytes(b"whole, but its batch had not ended")
    with closing(FileStore(folder, 1000)) as again:
        assert contents(again, kept.id) == b"{}" and run(again.get(kept.id, "me")) == kept
        assert {path.name for path in folder.glob("file-*")} == {kept.id}


def test_a_line_has_one_result(files: FileStore, batches: BatchStore) -> None:
    owned = begin(batches)
    for content in (b"first", b"second"):
        run(batches.add(owned.batch.id, [LineResult(1, True, content)]))
    run(batches.add(owned.batch.id, [LineResult(0, False, b"refused"), LineResult(2, True, b"third")]))
    assert run(batches.answered(owned.batch.id)) == {0, 1, 2}
    run(batches.end(owned, "completed"))
    batch = run(batches.get(owned.batch.id, "me"))
    assert batch is not None and batch.status == "completed" and batch.completed_at
    assert contents(files, batch.output_file_id) == b"first\nthird\n"
    assert contents(files, batch.error_file_id) == b"refused\n"
    assert (batch.request_counts.completed, batch.request_counts.failed) == (2, 1)
    assert run(batches.next()) is None


def test_a_disk_without_room_loses_no_result(files: FileStore, batches: BatchStore) -> None:
    owned = begin(batches)
    run(batches.add(owned.batch.id, [LineResult(0, True, b"answer")]))
    path, files.path = files.path, lambda id: Path("/nowhere") / id
    with pytest.raises(StorageError, match="cannot be written"):
        run(batches.end(owned, "completed"))
    files.path = path
    assert not left(files), "each attempt left a part of the output, and the disk stayed full"
    assert (run(batches.next()) or owned).batch.status == "validating"
    run(batches.end(owned, "completed"))
    batch = run(batches.get(owned.batch.id, "me"))
    assert batch is not None and contents(files, batch.output_file_id) == b"answer\n"


def test_a_disk_that_has_room_for_one_file_keeps_none(
    files: FileStore, batches: BatchStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt left an output file that no client could see, or delete."""
    owned = begin(batches)
    run(batches.add(owned.batch.id, [LineResult(0, True, b"answer"), LineResult(1, False, b"refused")]))
    replace, places = os.replace, iter([True, False])

    def replaced(old: Path, new: Path) -> None:
        if not next(places):
            raise OSError(errno.ENOSPC, "no room")
        replace(old, new)

    with monkeypatch.context() as full:
        full.setattr(os, "replace", replaced)
        with pytest.raises(StorageError, match="no room"):
            run(batches.end(owned, "completed"))
    assert not left(files)
    run(batches.end(owned, "completed"))
    assert len(left(files)) == 2


def left(files: FileStore) -> list[Path]:
    return list(files.path("any").parent.glob("file-*"))


def test_the_oldest_batch_comes_first_and_cancelling_stays(batches: BatchStore) -> None:
    first, second = begin(batches), begin(batches)
    run(batches.cancel(first.batch.id))
    changed: Batch = run(batches.change(first.batch.id, status="in_progress"))
    assert changed.status == "cancelling"
    assert (run(batches.next()) or second).batch.id == first.batch.id
    run(batches.end(first, "cancelled"))
    assert (run(batches.next()) or first).batch.id == second.batch.id
    assert run(batches.cancel(first.batch.id)).status == "cancelled"


def test_batches_are_bounded(batches: BatchStore) -> None:
    for _ in range(limits.BATCHES.whole):
        begin(batches)
    with pytest.raises(Overloaded, match="64 batches have not ended"):
        begin(batches)


def test_a_file_that_is_deleted_while_it_is_read_is_read_to_its_end(files: FileStore) -> None:
    """If it was before the first byte, the client got status 200 and nothing, and the log a traceback."""
    with files.uploaded() as new:
        new.path.write_bytes(b"{}")
        file = run(files.add(new, "", "in.jsonl", "batch"))
    context = SimpleNamespace(stores=SimpleNamespace(files=files))
    app = SimpleNamespace(state=SimpleNamespace(context=context))
    scope = {"type": "http", "path_params": {"file_id": file.id}, "headers": [], "app": app}

    async def read() -> bytes:
        response = await show_content(Request(scope))
        assert isinstance(response, StreamingResponse)
        await files.delete(file.id, "")
        return b"".join([bytes(part) async for part in response.body_iterator])

    assert run(read()) == b"{}"
