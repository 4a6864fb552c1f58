"""A store of responses keeps its bounds, and says what is wrong with its file."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Coroutine, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from starlette.requests import Request

from turnout.core.errors import ConfigError, StorageError
from turnout.server.api.background.background import end_unfinished
from turnout.server.api.responses.stored import list_input_items
from turnout.server.api.text_pool import TextPool
from turnout.server.http.request_memory import RequestMemory
from turnout.server.storage.response_store import (
    Bounds,
    ChainTooLong,
    ResponseStore,
    StoredResponse,
)

T = TypeVar("T")
DAY = 86_400


class Clock:
    now = 1e9

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[ResponseStore]:
    with closing(ResponseStore(tmp_path / "store.db", Bounds(5, 10_000, 2), clock)) as store:
        yield store


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def response(
    id: int,
    *,
    previous: int | None = None,
    owner: str = "me",
    size: int = 40,
    items: str = "",
    asked: str = "",
) -> StoredResponse:
    """items, asked: the names of what it gave, and of what it answered."""
    output, input = ([{"id": name} for name in names] for names in (items, asked))
    body = json.dumps({"output": output}).encode().ljust(size)
    return StoredResponse(
        str(id), owner, previous and str(previous), "completed", body, json.dumps(input).encode()
    )


def kept(store: ResponseStore, ids: range = range(1, 12)) -> list[int]:
    return [id for id in ids if run(store.get(str(id), "me"))]


def test_what_was_used_longest_ago_goes_first(store: ResponseStore, clock: Clock) -> None:
    for id in range(1, 6):
        clock.now += 1
        run(store.put(response(id, previous=id - 1 if id == 2 else None)))
    clock.now += 1
    run(store.conversation("2", "me", 10_000))  # which uses 1 too
    run(store.put(response(6)))
    run(store.put(response(7)))
    assert kept(store) == [1, 2, 5, 6, 7]


def test_bytes_are_bounded(store: ResponseStore, clock: Clock) -> None:
    for id in range(1, 5):
        clock.now += 1
        run(store.put(response(id, size=4000)))
    assert kept(store) == [3, 4]
    with pytest.raises(StorageError, match="more than --response-store-size"):
        run(store.put(response(9, size=10_000)))
    assert kept(store) == [3, 4]


def test_age_is_bounded(store: ResponseStore, clock: Clock) -> None:
    run(store.put(response(1)))
    clock.now += 2 * DAY + 1
    assert kept(store) == []
    run(store.put(response(2)))
    assert kept(store) == [2]


def test_a_clock_that_goes_back_takes_no_new_response(store: ResponseStore, clock: Clock) -> None:
    """A full store dropped each new response as the one that was used longest ago."""
    for id in range(1, 6):
        clock.now += 1
        run(store.put(response(id)))
    clock.now -= 3600
    run(store.put(response(6)))
    assert kept(store) == [2, 3, 4, 5, 6]
    clock.now += 1
    run(store.conversation("2", "me", 10_000))
    run(store.put(response(7)))
    assert kept(store) == [2, 4, 5, 6, 7]


def test_a_clock_that_was_ahead_for_a_while_keeps_nothing_for_ever(
    store: ResponseStore, clock: Clock
) -> None:
    clock.now += 1000 * DAY
    run(store.put(response(1)))
    clock.now -= 1000 * DAY
    run(store.put(response(2)))
    clock.now += 2 * DAY + 1
    assert kept(store) == []


def test_a_response_is_its_owners(store: ResponseStore) -> None:
    run(store.put(response(1)))
    assert run(store.get("1", "you")) is None and not run(store.delete("1", "you"))
    assert run(store.conversation("1", "you", 10_000)) == "1"
    assert run(store.delete("1", "me")) and not run(store.delete("1", "me"))


def test_a_conversation_is_found_in_order_and_bounded(store: ResponseStore) -> None:
    for id in range(1, 4):
        run(store.put(response(id, previous=id - 1 or None)))
    found = run(store.conversation("3", "me", 10_000))
    assert [each.id for each in found] == ["1", "2", "3"]
    with pytest.raises(ChainTooLong):
        run(store.conversation("3", "me", 500))
    run(store.delete("2", "me"))
    assert run(store.conversation("3", "me", 10_000)) == "2"


def holders(store: ResponseStore, items: str, owner: str = "me", most: int = 10_000) -> list[str]:
    return [each.id for each in run(store.holding(items, owner, most))]


def test_items_are_found_by_their_names(store: ResponseStore, clock: Clock) -> None:
    for number, (asked, items) in enumerate([("a", "bc"), ("", "d"), ("b", "e")], 1):
        clock.now += 1
        run(store.put(response(number, asked=asked, items=items)))
    assert [holders(store, item) for item in "bacdex"] == [["3"], ["1"], ["1"], ["2"], ["3"], []]
    assert sorted(holders(store, "abcdex")) == ["1", "2", "3"]
    assert holders(store, "a", owner="you") == []
    with pytest.raises(ChainTooLong):
        holders(store, "ad", most=300)
    run(store.delete("3", "me"))
    assert holders(store, "be") == ["1"], "the other response with b"


def test_items_go_with_their_responses(store: ResponseStore, clock: Clock) -> None:
    for number in range(8):
        clock.now += 1
        run(store.put(response(number, items=str(number))))
    assert holders(store, "01234567") == ["3", "4", "5", "6", "7"]
    (left,) = run(store._database.run(lambda db: db.execute("SELECT count(*) FROM items").fetchone()))
    assert left == 5


def test_a_new_state_has_its_items(store: ResponseStore) -> None:
    run(store.put(response(1, asked="a")))
    run(store.update("1", "me", "completed", response(1, items="b").body))
    assert holders(store, "b") == holders(store, "a") == ["1"]


def test_what_a_server_left_unfinished_has_failed(store: ResponseStore) -> None:
    run(store.put(replace(response(1), status="in_progress", body=b'{"status": "in_progress", "id": "1"}')))
    run(store.put(response(2)))
    run(end_unfinished(store))
    found = json.loads(run(store.get("1", "me")).body)
    assert found["status"] == "failed" and found["id"] == "1" and found["error"]["code"] == "server_error"
    assert run(store.get("2", "me")) == response(2)


def test_a_new_state_without_room_leaves_no_old_one(store: ResponseStore) -> None:
    """It was shown as in progress for ever."""
    run(store.put(replace(response(1), status="in_progress")))
    with pytest.raises(StorageError, match="more than --response-store-size"):
        run(store.update("1", "me", "completed", b"{}".ljust(10_000)))
    assert kept(store) == []


def test_what_was_left_unfinished_without_room_for_its_end_is_lost(
    store: ResponseStore, caplog: pytest.LogCaptureFixture
) -> None:
    """The server did not start again."""
    left = json.dumps({"status": "in_progress", "user": "a" * 9_700}).encode()
    run(store.put(replace(response(1), status="in_progress", body=left)))
    run(end_unfinished(store))
    assert kept(store) == [] and "the response 1 is lost: the response has 10," in caplog.text


def test_an_update_brings_nothing_back(store: ResponseStore) -> None:
    run(store.put(response(1)))
    run(store.update("1", "me", "failed", b"{}"))
    assert run(store.get("1", "me")).status == "failed"
    run(store.delete("1", "me"))
    run(store.update("1", "me", "failed", b"{}"))
    assert kept(store) == []


def test_a_full_disk_loses_nothing_else(store: ResponseStore) -> None:
    run(store.put(response(1)))
    pages = run(store._database.run(lambda db: db.execute("PRAGMA page_count").fetchone()[0]))
    run(store._database.run(lambda db: db.execute(f"PRAGMA max_page_count={pages}").fetchone()))
    with pytest.raises(StorageError, match=r"store\.db cannot grow: the disk is full") as full:
        run(store.put(response(2, size=9000)))
    assert full.value.full and kept(store) == [1]
    run(store._database.run(lambda db: db.execute("PRAGMA max_page_count=10000").fetchone()))
    run(store.put(response(2, size=9000)))
    assert kept(store) == [1, 2]


def open_store(file: Path) -> ResponseStore:
    return ResponseStore(file, Bounds(5, 10_000, 2))


def test_a_file_that_is_no_store_is_refused_at_the_start(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_bytes(b"my diary\n" * 1000)
    with pytest.raises(ConfigError, match="text is no SQLite file"):
        open_store(text)
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE diary (page TEXT)")
    with pytest.raises(ConfigError, match=r"other\.db holds something else"):
        open_store(other)
    with pytest.raises(ConfigError, match="cannot be opened; its folder must exist"):
        open_store(tmp_path / "nowhere" / "store.db")
    with closing(open_store(tmp_path / "store.db")), pytest.raises(ConfigError, match="in use by another"):
        open_store(tmp_path / "store.db")


def test_a_damaged_file_is_refused_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    with closing(open_store(file)) as store:
        for id in range(1, 6):
            run(store.put(response(id, size=1500)))
    content = bytearray(file.read_bytes())
    content[4096:12288] = b"\xff" * 8192
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"store\.db is damaged; move it away"):
        open_store(file)


def test_a_file_that_is_damaged_while_it_serves_is_named(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    with closing(open_store(file)) as store:
        for id in range(1, 6):
            run(store.put(response(id, size=1500)))
        run(store._database.run(lambda db: db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()))
        run(store._database.run(lambda db: db.execute("PRAGMA shrink_memory").fetchone()))
        with file.open("r+b") as damaged:
            damaged.seek(4096)
            damaged.write(b"\xff" * 30_000)
        with pytest.raises(StorageError, match=r"store\.db is damaged"):
            for id in range(1, 6):
                run(store.get(str(id), "me"))


def test_items_that_are_listed_count_for_the_memory_of_requests(store: ResponseStore) -> None:
    """They were decoded on the event loop, uncounted: a conversation of many items stopped every stream."""
    both = [response(1, owner="", asked="ab"), response(2, owner="", previous=1, asked="c")]
    for each in both:
        run(store.put(each))
    stores, config = SimpleNamespace(responses=store), SimpleNamespace(max_body_size=10_000)
    context = SimpleNamespace(stores=stores, config=config, texts=TextPool())
    app = SimpleNamespace(state=SimpleNamespace(context=context))
    scope = {"type": "http", "path_params": {"response_id": "2"}, "query_string": b"order=asc", "headers": []}

    async def listed() -> tuple[list[str], int]:
        request = Request({**scope, "app": app}, receive=asyncio.Event().wait)
        with RequestMemory(10**9).held_for(request.scope) as memory:
            found = json.loads((await list_input_items(request)).body)
            return [item["id"] for item in found["data"]], memory.size

    assert run(listed()) == (["a", "b", "c"], 8 * sum(each.size for each in both))
