"""Several engines behind one port: requests are spread, and go on elsewhere when an engine dies or drains."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from asking import COMPLETIONS, events
from echo_engine import POOL
from running_server import RunningServer, Start, eventually

from turnout.config import EngineConfig
from turnout.core.engine.packed_prompt import PackedPrompt
from turnout.core.errors import ConfigError
from turnout.core.interfaces.router import Routable
from turnout.core.interfaces.trial import SESSION_HEADER
from turnout.core.logs import LogStyle
from turnout.core.types.messages import ListPrefixes, PinPrefix, ShowScheduler
from turnout.plugins.routers.score import Score
from turnout.server.engine import next_engine
from turnout.server.engine import process as engine_process
from turnout.server.engine.client import ProcessClient
from turnout.server.engine.process import EngineProcess
from turnout.server.fleet.fleet import Fleet
from turnout.server.fleet.replica import ReplicaOrder

REPLICAS = "/admin/replicas"

Answers = list[Future[httpx.Response]]


def states(server: RunningServer) -> dict[str, str]:
    listed = server.http.get(REPLICAS).json()["replicas"]
    return {replica["name"]: replica["state"] for replica in listed}


def serving(server: RunningServer, *names: str) -> bool:
    """Whether these serve, and no other replica. Ask first for what comes before: it may happen meanwhile."""
    return states(server) == dict.fromkeys(names, "serving")


def kill(server: RunningServer, name: str) -> None:
    (pid,) = [replica.client.pid for replica in server.fleet.replicas if replica.name == name]
    os.kill(pid, signal.SIGKILL)


def change(server: RunningServer, action: str, name: str) -> httpx.Response:
    return server.post(REPLICAS, action=action, replica=name)


def delivered(server: RunningServer) -> int:
    streams = [stream for replica in server.fleet.replicas for stream in replica.client.streams.unfinished]
    return sum(len(output) for stream in streams for output in stream.outputs.values())


def held(server: RunningServer) -> dict[str, int]:
    """Requests that each replica has."""
    return {replica.name: replica.view.requests for replica in server.fleet.replicas}


def ask(server: RunningServer, number: int, **body: object) -> httpx.Response:
    given = {"prompt": f"{number:03d}", "max_tokens": 90, "user": "brisk", **body}
    return server.post(COMPLETIONS, **given)


def said(answer: Future[httpx.Response]) -> str:
    return str(answer.result(60).json()["choices"][0]["text"])


def expected(number: int, length: int = 90) -> str:
    return (f"{number:03d}" * length)[:length]


@pytest.fixture
def three(start: Start) -> RunningServer:
    return start(replicas=3, admin_key=[])


# ------------------------------------------------------------------ who gets a request


def test_requests_are_spread_and_each_is_counted_while_it_lasts(three: RunningServer) -> None:
    with ThreadPoolExecutor(6) as pool:
        answers: Answers = [pool.submit(ask, three, number) for number in range(6)]
        eventually(lambda: held(three) == {"0": 2, "1": 2, "2": 2})
        assert [said(answer) for answer in answers] == [expected(number) for number in range(6)]
    eventually(lambda: held(three) == {"0": 0, "1": 0, "2": 0})


def test_a_session_stays_with_its_replica(start: Start) -> None:
    server = start(replicas=3, router="session-affinity")
    with ThreadPoolExecutor(6) as pool:
        for session in ("a", "b"):
            headers = {SESSION_HEADER: session}
            body = {"prompt": "x", "max_tokens": 60, "user": "brisk"}
            answers = [
                pool.submit(server.http.post, COMPLETIONS, json=body, headers=headers) for _ in range(3)
            ]
            eventually(lambda: sorted(held(server).values()) == [0, 0, 3])
            assert all(answer.result(60).status_code == 200 for answer in answers)


def test_prompts_go_where_their_prefix_is_cached(start: Start) -> None:
    """Engines tell; one that is replaced has forgotten everything."""
    server = start(replicas=3, router="score")
    prompt = "x" * 70

    tokens = server.post("/tokenize", prompt=prompt).json()["tokens"]

    def cached() -> dict[str, int]:
        asked = Routable("", tokens, 1)
        return {replica.name: replica.view.cached(asked) for replica in server.fleet.replicas}

    assert set(cached().values()) == {0}
    server.post(COMPLETIONS, prompt=prompt, max_tokens=1)
    eventually(lambda: sorted(cached().values()) == [0, 0, 64])
    (has,) = [name for name, tokens in cached().items() if tokens]
    assert type(server.fleet.packed(tokens)) is PackedPrompt
    body = {"prompt": prompt, "max_tokens": 1}
    usages = [server.post(COMPLETIONS, **body).json()["usage"] for _ in range(6)]
    assert [usage["prompt_tokens_details"]["cached_tokens"] for usage in usages] == [64] * 6
    kill(server, has)
    eventually(lambda: set(cached().values()) == {0})
    eventually(lambda: server.fleet.restarts == 1 and serving(server, "0", "1", "2"), 15)
    server.post(COMPLETIONS, **body)
    eventually(lambda: sorted(cached().values()) == [0, 0, 64])


def test_a_router_that_asks_for_caches_needs_engines_that_tell() -> None:
    def launch(order: ReplicaOrder) -> ProcessClient:
        return ProcessClient(
            factory="echo_engine:build", log=LogStyle("critical"), replica=order.name, journal=order.journal
        )

    async def main() -> None:
        fleet = Fleet(launch, 2, Score())
        fleet.configure(EngineConfig(model="echo", kv="contiguous"))
        try:
            await fleet.start()
        finally:
            await fleet.close()

    with pytest.raises(ConfigError, match="the KV backend contiguous does not tell; choose --kv paged"):
        asyncio.run(main())


BAD_ROUTERS = """
from turnout.core.interfaces.router import Router
from turnout.core.registry.hookspecs import hookimpl

class Raises(Router):
    def route(self, request, replicas):
        raise KeyError("lost")

class Wrong(Router):
    def route(self, request, replicas):
        return 7

@hookimpl
def register_routers(register):
    register("raises", Raises)
    register("wrong", Wrong)
"""


@pytest.mark.parametrize("router", ["raises", "wrong"])
def test_a_router_that_fails_costs_no_request(start: Start, router: str, tmp_path: Path) -> None:
    (tmp_path / "turnout_plugins.py").write_text(BAD_ROUTERS)
    server = start(engine={"plugins_folder": str(tmp_path)}, replicas=2, router=router)
    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(ask, server, number) for number in range(4)]
        assert [said(answer) for answer in answers] == [expected(number) for number in range(4)]
    assert server.http.get(REPLICAS).json()["router_faults"] == 4


# ------------------------------------------------------------------ engines that die


def test_streams_of_a_dead_engine_go_on_elsewhere_at_once(three: RunningServer) -> None:
    """Streamed, in one piece, and with several choices: no token lost, repeated or changed."""
    with ThreadPoolExecutor(24) as pool:
        answers: Answers = [pool.submit(ask, three, number) for number in range(16)]
        body = {"prompt": "abcdefg", "max_tokens": 90, "n": 3, "logprobs": 1, "user": "brisk"}
        streams = [pool.submit(events, three, COMPLETIONS, **body) for _ in range(8)]
        eventually(lambda: delivered(three) > 100)
        kill(three, "1")
        eventually(lambda: states(three)["1"] == "restarting")
        assert three.http.get("/health").status_code == 200, "the others serve"
        eventually(lambda: held(three)["1"] == 0)
        assert [said(answer) for answer in answers] == [expected(number) for number in range(16)]
        for stream in streams:
            chunks = stream.result(60)
            texts = ["", "", ""]
            for choice in (choice for chunk in chunks for choice in chunk["choices"]):
                texts[choice["index"]] += choice["text"]
            assert texts == [("abcdefg" * 20)[index:][:90] for index in range(3)]
    eventually(lambda: serving(three, "0", "1", "2"), 15)


def test_streams_go_on_as_soon_as_the_channel_tells_of_the_end(
    three: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They waited 0.2 seconds for messages on their way."""
    monkeypatch.setattr(engine_process, "LAST_MESSAGE_SECONDS", 600.0)
    with ThreadPoolExecutor(6) as pool:
        answers: Answers = [pool.submit(ask, three, number) for number in range(6)]
        eventually(lambda: delivered(three) > 20)
        kill(three, "1")
        assert [said(answer) for answer in answers] == [expected(number) for number in range(6)]


def test_another_engine_starts_once_the_streams_of_the_dead_one_have_a_token_elsewhere(
    three: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It took the cores that the others needed to compute the streams again."""
    monkeypatch.setattr(next_engine, "SETTLE_SECONDS", 600.0)
    alive, dying, other = (replica.client for replica in three.fleet.replicas)
    with ThreadPoolExecutor(6) as pool:
        answers: Answers = [pool.submit(ask, three, number, max_tokens=200) for number in range(6)]
        eventually(lambda: delivered(three) > 20 and held(three) == {"0": 2, "1": 2, "2": 2})
        before = dying.pid
        os.kill(alive.pid, signal.SIGSTOP)
        os.kill(other.pid, signal.SIGSTOP)
        kill(three, "1")
        eventually(lambda: dying.restarting and held(three) == {"0": 3, "1": 0, "2": 3})
        time.sleep(0.3)
        assert dying.pid == before
        os.kill(alive.pid, signal.SIGCONT)
        os.kill(other.pid, signal.SIGCONT)
        eventually(lambda: dying.pid != before)
        assert [said(answer) for answer in answers] == [expected(number, 200) for number in range(6)]
    eventually(lambda: serving(three, "0", "1", "2"), 15)


def test_requests_wait_for_an_engine_only_where_none_serves(start: Start) -> None:
    server = start(replicas=2)
    with ThreadPoolExecutor(4) as pool:
        answers: Answers = [pool.submit(ask, server, number) for number in range(4)]
        eventually(lambda: delivered(server) > 20)
        for name in ("0", "1"):
            kill(server, name)
        eventually(lambda: server.http.get("/health").status_code == 503)
        assert server.http.get("/health").json()["replicas"] == {"0": "restarting", "1": "restarting"}
        answers.append(pool.submit(ask, server, 4))
        assert [said(answer) for answer in answers] == [expected(number) for number in range(5)]


def test_a_replica_that_is_given_up_leaves_the_others_serving(start: Start) -> None:
    server = start(replicas=2, engine_restarts=0)
    with ThreadPoolExecutor(4) as pool:
        answers: Answers = [pool.submit(ask, server, number) for number in range(4)]
        eventually(lambda: delivered(server) > 20)
        kill(server, "0")
        eventually(lambda: states(server) == {"0": "failed", "1": "serving"})
        assert [said(answer) for answer in answers] == [expected(number) for number in range(4)]
    assert server.arms.failure is None
    kill(server, "1")
    eventually(lambda: server.arms.failure is not None)


@pytest.mark.parametrize("user", [pytest.param("killed", marks=pytest.mark.slow), "doomed"])
def test_one_that_kills_engines_is_ended_alone_after_three_of_them(three: RunningServer, user: str) -> None:
    """At its first token, or in mid-stream."""
    with ThreadPoolExecutor(13) as pool:
        answers: Answers = [pool.submit(ask, three, number, max_tokens=200) for number in range(12)]
        eventually(lambda: delivered(three) > 60)
        murderer = pool.submit(ask, three, 99, user=user)
        assert [said(answer) for answer in answers] == [expected(number, 200) for number in range(12)]
        response = murderer.result(60)
    assert response.status_code == 500
    assert "died each time that it served this request alone: " in response.json()["error"]["message"]
    assert three.fleet.restarts <= 3
    eventually(lambda: serving(three, "0", "1", "2"), 15)


# ------------------------------------------------------------------ replicas that come and go


def test_a_drained_replica_gives_its_requests_to_the_others(three: RunningServer) -> None:
    with ThreadPoolExecutor(12) as pool:
        answers: Answers = [pool.submit(ask, three, number) for number in range(12)]
        eventually(lambda: delivered(three) > 60)
        assert change(three, "drain", "0").status_code == 200
        assert held(three)["0"] == 0
        eventually(lambda: states(three)["0"] == "drained")
        assert [said(answer) for answer in answers] == [expected(number) for number in range(12)]
        ask(three, 1)
        assert held(three)["0"] == 0


def test_each_is_restarted_in_turn_under_load_and_nothing_is_lost(three: RunningServer) -> None:
    """Each stays listed: whoever waits until all serve waits for the new engine, too."""

    def all_serve() -> bool:
        now = states(three)
        assert sorted(now) == ["0", "1", "2"]
        return {*now.values()} == {"serving"}

    with ThreadPoolExecutor(12) as pool:
        answers: Answers = [pool.submit(ask, three, number, max_tokens=200) for number in range(12)]
        for name in ("0", "1", "2"):
            before = [replica.client.pid for replica in three.fleet.replicas]
            assert change(three, "restart", name).status_code == 200
            eventually(all_serve, 15)
            assert len(set(before) - {replica.client.pid for replica in three.fleet.replicas}) == 1
        assert [said(answer) for answer in answers] == [expected(number, 200) for number in range(12)]


@pytest.mark.parametrize("action", ["drain", "restart", "remove"])
def test_one_that_is_being_restarted_is_changed_by_nothing_else(three: RunningServer, action: str) -> None:
    """A drain was answered with 200, and the next engine served in spite of it."""
    with ThreadPoolExecutor(12) as pool:
        answers: Answers = [pool.submit(ask, three, number) for number in range(12)]
        eventually(lambda: delivered(three) > 20)
        assert change(three, "restart", "0").status_code == 200
        refused = change(three, action, "0")
        assert refused.status_code == 409
        assert refused.json()["error"]["message"] == (
            "replica '0' is being ended already, once its last request has"
        )
        assert [said(answer) for answer in answers] == [expected(number) for number in range(12)]
    eventually(lambda: serving(three, "0", "1", "2"), 15)
    assert change(three, "drain", "0").status_code == 200
    eventually(lambda: states(three)["0"] == "drained")


def test_engines_that_end_as_asked_are_no_failures(
    three: RunningServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason was that the server is shutting down, and removing one that starts logged an error."""
    reasons: list[str | None] = []
    stop = EngineProcess.stop

    async def noted(process: EngineProcess, grace: float) -> None:
        reasons.extend(replica.client.failure for replica in three.fleet.replicas)
        await stop(process, grace)

    monkeypatch.setattr(EngineProcess, "stop", noted)
    before = three.fleet.named("0")
    assert change(three, "restart", "0").status_code == 200
    eventually(lambda: before not in three.fleet.replicas and serving(three, "0", "1", "2"), 15)
    assert reasons == ["the replica is being replaced", None, None]
    assert three.post(REPLICAS, action="add").status_code == 200
    starting = three.fleet.named("3").client
    assert change(three, "remove", "3").status_code == 200
    eventually(lambda: serving(three, "0", "1", "2"))
    assert starting.failure == "the replica has been removed"
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_one_is_added_and_one_removed(start: Start) -> None:
    server = start()
    refused = change(server, "remove", "0")
    assert refused.status_code == 409
    assert refused.json()["error"]["message"] == (
        "replica '0' is the only one that serves; add another first"
    )
    assert server.post(REPLICAS, action="add").status_code == 200
    eventually(lambda: serving(server, "0", "1"), 15)
    assert change(server, "remove", "0").status_code == 200
    eventually(lambda: serving(server, "1"))
    assert said_now(ask(server, 5)) == expected(5)
    assert change(server, "drain", "0").json()["error"]["message"] == "there is no replica '0'; known: 1"
    assert server.post(REPLICAS, action="drain").status_code == 400


def test_one_that_is_added_and_does_not_start_is_listed_and_can_be_removed(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of replicas was an error, the engine's, from then on."""
    server = start(replicas=2)

    def no_such_engine(order: ReplicaOrder) -> ProcessClient:
        return ProcessClient(factory="no_such_module:build", replica=order.name, journal=order.journal)

    monkeypatch.setattr(server.fleet, "_launch", no_such_engine)
    assert server.post(REPLICAS, action="add").status_code == 200
    eventually(lambda: states(server) == {"0": "serving", "1": "serving", "2": "failed"}, 15)
    (failed,) = [each for each in server.http.get(REPLICAS).json()["replicas"] if each["name"] == "2"]
    assert "no_such_module" in failed["reason"] and failed["ranks"] == 0
    assert change(server, "remove", "2").status_code == 200
    eventually(lambda: serving(server, "0", "1"))
    assert said_now(ask(server, 5)) == expected(5)


def said_now(answer: httpx.Response) -> str:
    return str(answer.json()["choices"][0]["text"])


# ------------------------------------------------------------------ what they have in common


def test_a_policy_reaches_every_replica_and_every_later_one(start: Start) -> None:
    server = start(replicas=2)
    assert server.post("/admin/scheduler", name="ljf").status_code == 200
    assert server.post(REPLICAS, action="add").status_code == 200
    eventually(lambda: serving(server, "0", "1", "2"), 15)
    kill(server, "0")
    eventually(lambda: server.fleet.restarts == 1 and serving(server, "0", "1", "2"), 15)
    replies = [_policy_of(server, name) for name in ("0", "1", "2")]
    assert replies == ["ljf", "ljf", "ljf"]


@pytest.mark.parametrize("change", ["added", "died"])
def test_an_engine_that_comes_while_others_are_slow_to_obey_is_told_too(start: Start, change: str) -> None:
    """It had been told what held before, and kept the policy and the pins of then."""
    server = start(replicas=1 if change == "added" else 2)
    pin = {"name": "old", "prompt": "x" * 64, "compute": False}
    assert server.post("/admin/prefixes", **pin).status_code == 200
    slow = server.fleet.named("0").client.pid
    os.kill(slow, signal.SIGSTOP)
    with ThreadPoolExecutor(3) as pool:
        try:
            if change == "added":
                assert server.post(REPLICAS, action="add").status_code == 200
            else:
                kill(server, "1")
                eventually(lambda: states(server)["1"] == "restarting")
            newest = sorted(states(server))[-1]
            answers = [
                pool.submit(server.post, "/admin/scheduler", name="ljf"),
                pool.submit(server.post, "/admin/prefixes", **{**pin, "name": "new"}),
                pool.submit(server.http.delete, "/admin/prefixes/old"),
            ]
            eventually(lambda: states(server)[newest] == "serving", 15)
        finally:
            os.kill(slow, signal.SIGCONT)
        assert [answer.result(20).status_code for answer in answers] == [200, 200, 200]
    assert {_policy_of(server, name) for name in states(server)} == {"ljf"}
    assert [list(_pins_of(server, name)) for name in states(server)] == [["new"]] * 2


@pytest.mark.parametrize("earlier", [False, True])
def test_a_prefix_that_one_engine_has_no_room_for_is_pinned_in_none(start: Start, earlier: bool) -> None:
    """The client had an error, and the other engine kept the prefix, as did those that started later."""
    server = start(replicas=2)

    def pin(*first: int, length: int = 96) -> httpx.Response:
        return server.post("/admin/prefixes", name="late", prompt=[*first, *range(length)], compute=False)

    if earlier:
        assert pin(9, length=16).json()["tokens"] == 16
    full: Any = server.fleet.named("1").client.admin(PinPrefix("large", list(range(3, POOL - 64))))
    assert asyncio.run_coroutine_threadsafe(full, server.loop).result(10).error == ""
    refused = pin(5)
    assert refused.status_code == 400 and "'late' needs 96 tokens" in refused.text
    before = {"late": 16} if earlier else {}
    assert _pins_of(server, "0") == before and _pins_of(server, "1") == {**before, "large": POOL - 80}
    assert server.fleet.generation is not None
    kept = server.fleet.generation.journal.pin("late")
    assert (kept is not None and kept.tokens[0] == 9) if earlier else kept is None


def _pins_of(server: RunningServer, name: str) -> dict[str, int]:
    """How many tokens of each prefix an engine keeps."""
    client = server.fleet.named(name).client
    reply: Any = asyncio.run_coroutine_threadsafe(client.admin(ListPrefixes()), server.loop).result(10)
    return {prefix.name: prefix.tokens for prefix in reply.value.prefixes}


def _policy_of(server: RunningServer, name: str) -> str:
    client = server.fleet.named(name).client
    reply: Any = asyncio.run_coroutine_threadsafe(client.admin(ShowScheduler()), server.loop).result(10)
    return str(reply.value.scheduler)


def test_metrics_keep_the_label_of_a_replica_that_is_left_alone(start: Start) -> None:
    """Alerts and rates by replica broke, and another engine took over its figures."""

    def labels() -> set[str]:
        lines = server.http.get("/metrics").text.splitlines()
        return {line.split("{")[1].split("}")[0] for line in lines if line.startswith("turnout:engine_steps")}

    server = start(replicas=1)
    eventually(
        lambda: labels() == {'model_name="echo"'}
    )  # an engine reports its figures soon after it serves
    assert server.post(REPLICAS, action="add").status_code == 200
    eventually(lambda: serving(server, "0", "1"), 15)
    both = {'model_name="echo",replica="0"', 'model_name="echo",replica="1"'}
    eventually(lambda: labels() == both)
    assert change(server, "remove", "0").status_code == 200
    eventually(lambda: serving(server, "1"))
    assert labels() == {'model_name="echo",replica="1"'}


def test_metrics_tell_replicas_apart(three: RunningServer) -> None:
    ask(three, 1)
    lines = three.http.get("/metrics").text.splitlines()
    steps = [line for line in lines if line.startswith("turnout:engine_steps_total")]
    assert len(steps) == 3 and all('replica="' in line for line in steps)
    assert any(line.startswith("turnout:request_success_total") and "replica=" not in line for line in lines)
