"""What keeps a server from a worker's engine is told at start-up, and loses nothing while the server runs."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from asking import COMPLETIONS
from echo_engine import KERNELS
from running_server import eventually
from worker_process import Connect, StartWorker

from turnout.config import EngineConfig, ServerConfig
from turnout.core.errors import ConfigError, EngineGone
from turnout.core.interfaces.launcher import ChannelKeys, EngineAddress
from turnout.core.registry.registry import Registry
from turnout.core.types.messages import LoadProgress, Watch
from turnout.core.version import own_version
from turnout.plugins.launchers import static
from turnout.plugins.launchers.static import Static
from turnout.server.engine import process
from turnout.server.engine.client import ProcessClient
from turnout.server.engine.remote import link
from turnout.server.engine.remote.link import WorkerLink, made_pair
from turnout.server.engine.remote.messages import Kind, Refused, Tick, Welcome, numbered
from turnout.server.fleet.fleet import Fleet
from turnout.server.fleet.places import Places
from turnout.server.worker.door import Door
from turnout.server.worker.keys import kept_keys


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (link, process):
        monkeypatch.setattr(module, "CONNECT_SECONDS", 0.5)


@pytest.fixture
def door(keys: Path) -> Iterator[Door]:
    pair, _ = kept_keys(str(keys))
    door = Door("tcp://127.0.0.2:*", pair.public, pair.secret, pair.public)
    yield door
    door.close()


def started(keys: Path, *urls: str, expects: str = "") -> None:
    """Starts a fleet of workers' engines. Raises what the server would end with."""
    launcher = Static(str(keys))

    async def main() -> None:
        fleet = Fleet(lambda order: ProcessClient(launcher=launcher, place=order.place), 0, workers=urls)
        fleet.expects["tokenizer"] = expects
        fleet.configure(EngineConfig(model="echo"))
        try:
            await fleet.start()
        finally:
            await fleet.close()

    asyncio.run(main())


def test_where_no_worker_answers_it_is_said(keys: Path, impatient: None) -> None:
    kept_keys(str(keys))
    with pytest.raises(EngineGone, match=r"of tcp://127.0.0.9:9 did not let .*: no worker answers there"):
        started(keys, "tcp://127.0.0.9:9")


def test_a_name_without_an_address_is_told_at_once_and_looked_for_again(
    keys: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """That of a pod comes later. Previously the message was that no worker answered."""
    monkeypatch.setattr(static, "RESOLVE_SECONDS", 0.2)
    monkeypatch.setattr(static, "RETRY_SECONDS", 0.05)
    kept_keys(str(keys))
    said = "the name in tcp://no.such.host.invalid:7000 has no address: "
    with pytest.raises(EngineGone, match=rf"cannot be placed: {said}.*; check --replica"):
        started(keys, "tcp://no.such.host.invalid:7000")
    assert [said in line and "looking again for" in line for line in caplog.messages] == [True]


def test_another_file_of_keys_is_said(keys: Path, tmp_path: Path, door: Door) -> None:
    other = tmp_path / "other.key"
    kept_keys(str(other))
    with pytest.raises(EngineGone, match="agreed on no keys with this server: it has another file"):
        started(other, door.url)


def test_the_workers_public_key_alone_opens_nothing(keys: Path, door: Door) -> None:
    """It is the secret one of the pair that lets a server in."""
    pair, _ = kept_keys(str(keys))
    stranger = WorkerLink(EngineAddress(door.url, ChannelKeys(pair.worker, *made_pair())))
    try:
        eventually(lambda: list(stranger.receive()) or stranger.death)
        assert stranger.death is not None and "refused this server's key" in stranger.death.how
        assert not list(door.messages())
    finally:
        stranger.close()


@pytest.mark.parametrize(
    ("kind", "answer", "message"),
    [
        (Kind.REFUSED, Refused("is of Turnout 0.0.1"), "refused this server: the worker is of Turnout 0.0.1"),
        (Kind.WAIT, Refused("serves another"), r"within 0.5 s: the worker serves another"),
    ],
    ids=["another version", "another server"],
)
def test_a_refusal_is_passed_on(
    keys: Path, door: Door, impatient: None, kind: Kind, answer: Refused, message: str
) -> None:
    stop = threading.Event()

    def answering() -> None:
        while not stop.wait(0.01):
            for server, what, content in door.messages():
                if what == Kind.HELLO:
                    assert json.loads(content) == {"version": own_version()}
                    door.send(server, kind, msgspec.json.encode(answer))

    thread = threading.Thread(target=answering)
    thread.start()
    try:
        with pytest.raises(EngineGone, match=message):
            started(keys, door.url)
    finally:
        stop.set()
        thread.join()


def test_times_are_those_of_the_workers_clock(keys: Path, door: Door) -> None:
    """Which began at another time: nothing seems to have waited for hours, or to come from the future."""
    pair, _ = kept_keys(str(keys))
    now = [1000.0]
    here = WorkerLink(EngineAddress(door.url, pair), clock=lambda: now[0])
    try:
        (hello,) = _awaited(door)
        for delay in (0.3, 0.1, 0.2):
            door.send(hello[0], Kind.WELCOME, msgspec.json.encode(Welcome(own_version(), 50_000 - delay)))
        eventually(lambda: list(here.receive()) or here._ahead > -1e9)
        eventually(lambda: list(here.receive()) or here._ahead == pytest.approx(48_999.9))
    finally:
        here.close()


def test_clocks_that_run_apart_are_followed(keys: Path, door: Door) -> None:
    """By a tenth of a second in twenty minutes: after a day, requests came from nine seconds ahead."""
    pair, _ = kept_keys(str(keys))
    now = [1000.0]
    here = WorkerLink(EngineAddress(door.url, pair), clock=lambda: now[0])
    try:
        for _ in range(24 * 60 * 6):
            now[0] += 10
            here._note_clock(50_000 + (now[0] - 1000) * (1 - 1e-4))
        assert here._ahead == pytest.approx(50_000 - 1000 - 8.64, abs=0.02)
    finally:
        here.close()


def test_a_link_that_is_lost_waits_for_no_last_message(keys: Path, door: Door) -> None:
    """The server stood still for a second, with the streams of all other engines."""
    pair, _ = kept_keys(str(keys))
    here = WorkerLink(EngineAddress(door.url, pair))
    (hello,) = _awaited(door)
    door.send(hello[0], Kind.WELCOME, msgspec.json.encode(Welcome(own_version(), 0.0)))
    eventually(lambda: list(here.receive()) or here._welcomed)
    door.close()

    def lost() -> bool:
        here.send(Watch(1.0, anew=False))
        return not list(here.receive()) and here.death is not None

    eventually(lost)
    began = time.monotonic()
    here.close()
    assert time.monotonic() - began < 0.5


@pytest.mark.parametrize(("sent", "missed"), [(1, False), (0, True)], ids=["from the worker", "to it"])
def test_messages_that_vanish_on_their_way_lose_the_link(
    keys: Path, door: Door, sent: int, missed: bool
) -> None:
    """Previously streams waited for them for ever. Each end tells the other how many it has sent."""
    pair, _ = kept_keys(str(keys))
    here = WorkerLink(EngineAddress(door.url, pair))
    try:
        (hello,) = _awaited(door)
        here.send(Watch(1.0, anew=False))
        for tick in (Tick(0.0, 0, missed=False), Tick(0.5, sent, missed)):
            assert here.death is None
            door.send(hello[0], Kind.TICK, msgspec.json.encode(tick))
            eventually(lambda: list(here.receive()) or door_heard(door, Kind.SENT) == [b'{"commands":1}'])
        assert here.death is not None and "lost messages on their way" in here.death.how
    finally:
        here.close()


def test_events_behind_a_gap_are_not_taken(keys: Path, door: Door) -> None:
    """Tokens were missing from streams, without a word."""
    pair, _ = kept_keys(str(keys))
    here = WorkerLink(EngineAddress(door.url, pair))
    progress = msgspec.msgpack.Encoder().encode([LoadProgress(0.5)])
    taken: list[object] = []
    try:
        (hello,) = _awaited(door)
        for number in (0, 1, 3, 4):
            door.send(hello[0], Kind.EVENTS, numbered(number, progress))
        eventually(lambda: taken.extend(here.receive()) or here.death)
        assert len(taken) == 2 and here.death is not None and "lost messages" in here.death.how
    finally:
        here.close()


def door_heard(door: Door, kind: Kind) -> list[bytes]:
    return [content for _, what, content in door.messages() if what == kind]


def _awaited(door: Door) -> list[tuple[bytes, bytes, bytes]]:
    found: list[tuple[bytes, bytes, bytes]] = []
    eventually(lambda: found.extend(door.messages()) or found)
    return found


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"replica": ["tcp://a:1"]}, "no file of keys is given: channels to workers are encrypted"),
        ({"replica": ["tcp://a:1"], "replica_key_file": "/no/such"}, "there is no file of keys /no/such"),
        ({"replica": ["tcp://a:1", "tcp://a:1"], "replica_key_file": "K"}, "names a worker twice"),
        ({"replica": ["tcp://a:1"], "ab": ["x:scheduler=sjf"]}, "--ab and --replica do not go together"),
    ],
)
def test_options_that_do_not_go_together_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Places.of(Registry.load(), EngineConfig(model="echo"), ServerConfig(**given))


def test_options_of_engines_are_for_workers(keys: Path) -> None:
    kept_keys(str(keys))
    server = ServerConfig(replica=["tcp://a:1"], replica_key_file=str(keys))
    with pytest.raises(ConfigError, match="--scheduler: with --replica alone no engine runs here"):
        Places.of(Registry.load(), EngineConfig(model="echo", scheduler="sjf"), server)


def test_a_server_takes_on_workers_later_if_it_has_keys_for_them(keys: Path) -> None:
    kept_keys(str(keys))
    engine, without = EngineConfig(model="echo"), ServerConfig()
    here = Places.of(Registry.load(), engine, ServerConfig(replica_key_file=str(keys)))
    assert isinstance(here.launcher_at("tcp://a:1"), Static) and here.launcher_at("") is not here.workers
    with pytest.raises(ConfigError, match="no keys for workers: start it with --replica-key-file"):
        Places.of(Registry.load(), engine, without).launcher_at("tcp://a:1")
    only = ServerConfig(replica=["tcp://a:1"], replica_key_file=str(keys))
    with pytest.raises(ConfigError, match="all engines run at workers; name the address of another"):
        Places.of(Registry.load(), engine, only).launcher_at("")


@pytest.mark.parametrize("text", ["", "{}", '{"public": "a", "secret": "b"}', "[1]"])
def test_what_is_no_file_of_keys_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.key"
    path.write_text(text)
    with pytest.raises(ConfigError, match="file of keys"):
        Static(str(path))


@pytest.mark.parametrize(
    "place", ["", "a:1", "ipc:///tmp/x", "tcp://a", "http://a:1", "tcp://a:99999", "tcp://a:0"]
)
def test_what_is_no_address_of_a_worker_is_refused(keys: Path, place: str) -> None:
    kept_keys(str(keys))
    with pytest.raises(ConfigError, match=r"no address of a worker; expected tcp://HOST:PORT"):
        started(keys, place)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            {"dtype": "float32"},
            "replica 1 at tcp://127.0.0.3:.*: its engine has another dtype: float32",
        ),
        ({"model": "other"}, "its engine has another model: other, where the others have echo"),
        ({"model": "foreign"}, "its engine has another tokenizer: foreign, where the others have own"),
    ],
)
def test_an_engine_that_would_give_other_tokens_is_refused(
    worker: StartWorker, keys: Path, folder: Path, tmp_path: Path, other: dict[str, Any], message: str
) -> None:
    if "model" in other:
        other = {"model": shutil.copytree(folder, tmp_path / other["model"])}
    two = worker(), worker(**other)
    with pytest.raises(ConfigError, match=message):
        started(keys, *(each.url for each in two), expects="own")


def test_a_worker_whose_engine_is_refused_is_free_for_another_server(
    worker: StartWorker, connect: Connect
) -> None:
    """The server kept its engine, as it kept one that it had started itself, with all its memory."""
    one, other = worker(), worker(dtype="float32")
    server = connect(one, admin_key=[])
    assert server.post("/admin/replicas", action="add", worker=other.url).status_code == 200
    assert other.says("the server has left")
    eventually(lambda: server.fleet.named("1").condition == "failed")
    assert "has another dtype: float32" in str(server.fleet.named("1").client.failure)
    assert server.post(COMPLETIONS, prompt="ab", max_tokens=3).status_code == 200


@pytest.mark.slow
def test_a_worker_whose_cpu_gives_other_bits_is_warned_of_and_gets_no_stream_of_others(
    worker: StartWorker, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = worker(), worker(cpu_kernels="native")
    server = connect(one, other, admin_key=[])
    assert (
        f"replica 1 at {other.url}: its CPU, device or kernels are others than those of replica 0"
        in caplog.text
    )
    body = {"prompt": "abc", "max_tokens": 120, "user": "brisk"}
    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(server.post, COMPLETIONS, **body) for _ in range(4)]
        first, second = server.fleet.replicas
        eventually(lambda: sum(bool(stream.outputs) for stream in first.client.streams.all()) == 2)
        os.kill(one.engine, signal.SIGKILL)
        eventually(lambda: first.client.restarting)
        assert (first.view.requests, second.view.requests) == (2, 2), (
            "they wait for an engine of the same bits"
        )
        texts = [answer.result(60).json()["choices"][0]["text"] for answer in answers]
    assert texts == ["abc" * 40] * 4


@pytest.mark.parametrize("can", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_worker_takes_the_kernels_of_the_servers_other_engines(
    worker: StartWorker,
    connect: Connect,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    can: bool,
) -> None:
    """Where its options leave the choice to it, and if it can; each server gets what its own engines have."""
    one = worker()
    monkeypatch.setenv(KERNELS, "native" if can else "native only")
    other = worker()
    other.says("the engine is ready")
    server = connect(one, other, admin_key=[])
    first, second = server.fleet.replicas
    assert first.same_tokens(second) == can
    assert ("are others than those of replica 0" in caplog.text) == (not can)
    assert other.says("going back to its own" if not can else "other engines have torch kernels")
    assert server.post(COMPLETIONS, prompt="ab", max_tokens=3).status_code == 200
    assert server.post("/admin/replicas", action="remove", replica="1").status_code == 200
    eventually(lambda: len(server.fleet.replicas) == 1)
    alone = connect(other)
    assert alone.fleet.ready.cpu_kernels == "native"


@pytest.mark.slow
def test_a_worker_that_comes_back_with_another_model_gets_no_requests(
    worker: StartWorker, connect: Connect, folder: Path, tmp_path: Path
) -> None:
    two = [worker(), worker()]
    server = connect(*two)
    two[0].kill()
    worker(model=shutil.copytree(folder, tmp_path / "other"), listen=two[0].url)
    eventually(lambda: server.fleet.replicas[0].client.restarts >= 2, 40)
    assert not server.fleet.replicas[0].serves
    assert server.post(COMPLETIONS, prompt="ab", max_tokens=3).status_code == 200


@pytest.mark.slow
def test_a_second_server_waits_for_the_first_to_leave(worker: StartWorker, connect: Connect) -> None:
    one = worker()
    first = connect(one)
    with pytest.MonkeyPatch.context() as patch:
        for module in (link, process):
            patch.setattr(module, "CONNECT_SECONDS", 0.5)
        with pytest.raises(EngineGone, match="serves another server, which has not left"):
            started(one.keys, one.url)
    assert first.post(COMPLETIONS, prompt="ab", max_tokens=3).status_code == 200
