"""Two engines behind one port: who gets whom, what is told of each, and that arms end without a loss."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from asking import COMPLETIONS
from prometheus_client.parser import text_string_to_metric_families
from running_server import Other, RunningServer, Start, eventually, running
from starlette.requests import Request

from turnout.config import EngineConfig, ServerConfig
from turnout.core.interfaces.trial import SESSION_HEADER
from turnout.lab.ab.blocks import BlockSize
from turnout.server.fleet.arm_header import ARM_HEADER
from turnout.server.fleet.assignment import session_of, session_position
from turnout.text.tokenizer import Tokenizer

AB = "/admin/ab"


@pytest.fixture(scope="module")
def two(tokenizer: Tokenizer) -> Iterator[RunningServer]:
    """A server with two arms, for tests that end neither."""
    other = Other(engine={"scheduler": "ljf"})
    with running(tokenizer, EngineConfig(model="echo"), ServerConfig(), other=other) as server:
        yield server


def sessions_of(arm: str, count: int, share: float = 0.5) -> list[str]:
    """Some that belong to it."""
    names = (f"s{number}" for number in range(10_000))
    mine = [
        name for name in names if (session_position(f"session {name}", "long") < share) == (arm == "long")
    ]
    return mine[:count]


def ask(server: RunningServer, session: str, **body: object) -> httpx.Response:
    body = {"prompt": "ab", "max_tokens": 4, **body}
    return server.http.post(COMPLETIONS, json=body, headers={SESSION_HEADER: session})


def states(server: RunningServer) -> dict[str, str]:
    return {arm["name"]: arm["state"] for arm in server.http.get(AB).json()["arms"]}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[-1].split()[0] != "Z"
    except OSError:
        return False


# ------------------------------------------------------------------ who belongs to whom


def test_sessions_are_split_as_was_asked() -> None:
    inside = [session_position(f"session {number}", "long") < 0.2 for number in range(20_000)]
    assert 0.19 < sum(inside) / len(inside) < 0.21


def test_a_session_belongs_to_the_same_arm_in_every_process() -> None:
    """The figure is part of what is promised: a restart, or another release, must not move sessions."""
    assert session_position("session 42", "long") == pytest.approx(0.2672995644)


def test_a_larger_share_moves_no_session_out() -> None:
    places = [session_position(f"session {number}", "long") for number in range(1000)]
    assert {i for i, where in enumerate(places) if where < 0.1} <= {
        i for i, where in enumerate(places) if where < 0.3
    }


def test_two_tests_do_not_have_the_same_sessions() -> None:
    both = [
        session_position(f"session {number}", "one") < 0.5
        and session_position(f"session {number}", "two") < 0.5
        for number in range(4000)
    ]
    assert 0.22 < sum(both) / len(both) < 0.28


@pytest.mark.parametrize(
    ("headers", "user", "session"),
    [
        ({"x-session-id": "a", "x-request-id": "r"}, "u", "session a"),
        ({"x-request-id": "r"}, "u", "user u"),
        ({"x-request-id": "r"}, None, "request r"),
        ({}, "", "request cmpl-1"),
        ({"x-session-id": ""}, None, "request cmpl-1"),
    ],
)
def test_what_stays_together(headers: dict[str, str], user: str | None, session: str) -> None:
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    request = Request({"type": "http", "headers": encoded})
    assert session_of(request, user, "cmpl-1") == session


def test_a_session_meets_one_arm_and_its_answers_say_which(two: RunningServer) -> None:
    for arm in ("base", "long"):
        for session in sessions_of(arm, 5):
            answers = [ask(two, session) for _ in range(2)]
            assert [answer.headers[ARM_HEADER] for answer in answers] == [arm, arm]
            assert {answer.json()["model"] for answer in answers} == {"echo"}


def test_a_session_of_each_arm_is_named(two: RunningServer) -> None:
    for arm in two.http.get(AB).json()["arms"]:
        assert ask(two, arm["session"]).headers[ARM_HEADER] == arm["name"]


def test_a_user_is_a_session_too(two: RunningServer) -> None:
    arms = [
        two.post(COMPLETIONS, prompt="ab", max_tokens=1, user=f"u{number % 5}").headers[ARM_HEADER]
        for number in range(20)
    ]
    assert arms == arms[:5] * 4


def test_requests_on_their_own_meet_both_arms(two: RunningServer) -> None:
    arms = Counter(two.post(COMPLETIONS, prompt="ab", max_tokens=1).headers[ARM_HEADER] for _ in range(40))
    assert set(arms) == {"base", "long"} and min(arms.values()) > 5


def test_streams_chats_and_refusals_say_their_arm_too(two: RunningServer) -> None:
    (session,) = sessions_of("long", 1)
    headers = {SESSION_HEADER: session}
    body: dict[str, Any] = {"prompt": "ab", "max_tokens": 4}
    streamed = two.http.post(COMPLETIONS, json={**body, "stream": True}, headers=headers)
    refused = two.http.post(COMPLETIONS, json={**body, "max_tokens": 100_000}, headers=headers)
    messages = [{"role": "user", "content": "hello"}]
    chat = two.http.post(
        "/v1/chat/completions", json={"messages": messages, "max_tokens": 2}, headers=headers
    )
    assert (streamed.status_code, refused.status_code, chat.status_code) == (200, 400, 200)
    assert {answer.headers[ARM_HEADER] for answer in (streamed, refused, chat)} == {"long"}


def test_a_header_has_room_for_any_name(start: Start) -> None:
    server = start(other=Other(name="长", share=0.999))
    assert ask(server, "s").headers[ARM_HEADER] == "%E9%95%BF"
    assert server.http.get("/admin/scheduler", params={"arm": "长"}).status_code == 200


# ------------------------------------------------------------------ what is told of each


def test_each_metric_is_told_by_arm(two: RunningServer) -> None:
    for arm in ("base", "long"):
        ask(two, *sessions_of(arm, 1))
    families = list(text_string_to_metric_families(two.http.get("/metrics").text))
    assert len({family.name for family in families}) == len(families)
    for family in families:
        if "pooled" in family.name:  # counted by endpoint, and none was asked
            continue
        assert {sample.labels.get("arm") for sample in family.samples} == {"base", "long"}, family.name
        assert {sample.labels["model_name"] for sample in family.samples} == {"echo"}
    ended = {
        sample.labels["arm"]: sample.value
        for family in families
        for sample in family.samples
        if sample.name == "turnout:e2e_request_latency_seconds_count"
    }
    requests = two.http.get(AB).json()["comparison"]["requests"]
    assert ended == {arm: of["completed"] for arm, of in requests.items()}


def test_a_request_that_one_arm_refuses_is_counted_as_refused(start: Start) -> None:
    server = start(other=Other(engine={"max_num_seqs": 4}))
    statuses = {arm: ask(server, *sessions_of(arm, 1), n=5).status_code for arm in ("base", "long")}
    assert statuses == {"base": 200, "long": 400}
    counts = server.http.get(AB).json()["comparison"]["requests"]
    assert (counts["base"]["completed"], counts["base"]["refused"]) == (5, 0)
    assert (counts["long"]["requests"], counts["long"]["completed"], counts["long"]["refused"]) == (1, 0, 1)


def test_admin_says_which_engine_is_meant(two: RunningServer) -> None:
    def scheduler(arm: str) -> str:
        return two.http.get("/admin/scheduler", params={"arm": arm}).json()["scheduler"]

    assert (scheduler("base"), scheduler("long")) == ("fcfs", "ljf")
    changed = two.http.post("/admin/scheduler", params={"arm": "long"}, json={"name": "sjf"})
    assert changed.json()["scheduler"] == "sjf" and changed.headers[ARM_HEADER] == "long"
    assert (scheduler("base"), scheduler("long")) == ("fcfs", "sjf")
    two.http.post("/admin/scheduler", params={"arm": "long"}, json={"name": "ljf"})

    pin = {"name": "one", "prompt": [5] * 40}
    assert two.http.post("/admin/prefixes", params={"arm": "long"}, json=pin).json()["cached"] == 32
    assert two.http.get("/admin/prefixes", params={"arm": "base"}).json() == {"prefixes": []}
    assert two.http.get("/admin/kv", params={"arm": "long"}).json()["pinned"] == 32
    assert two.http.get("/admin/plugins", params={"arm": "long"}).json()["plugins"]
    assert two.http.delete("/admin/prefixes/one", params={"arm": "base"}).status_code == 404
    assert two.http.delete("/admin/prefixes/one", params={"arm": "long"}).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/admin/scheduler", None),
        ("POST", "/admin/scheduler", {"name": "fcfs"}),
        ("GET", "/admin/kv", None),
        ("GET", "/admin/plugins", None),
        ("GET", "/admin/prefixes", None),
        ("POST", "/admin/prefixes", {"name": "a", "prompt": "ab"}),
        ("DELETE", "/admin/prefixes/a", None),
    ],
)
def test_who_does_not_say_so_is_asked(two: RunningServer, method: str, path: str, body: object) -> None:
    response = two.http.request(method, path, json=body)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == "arm" and error["message"].endswith("?arm=base or ?arm=long")
    unknown = two.http.request(method, path, json=body, params={"arm": "lng"})
    assert unknown.status_code == 400 and "there is no arm 'lng'" in unknown.json()["error"]["message"]


def test_a_server_without_a_test_knows_no_arms(server: RunningServer) -> None:
    assert ARM_HEADER not in ask(server, "s").headers
    assert server.http.get(AB).json()["error"]["code"] == "no_ab"
    assert server.post(AB, action="stop", arm="base").status_code == 404
    assert "without --ab" in server.http.get("/admin/kv?arm=base").json()["error"]["message"]


def test_figures_appear_as_blocks_end(start: Start) -> None:
    server = start(other=Other(block=BlockSize(seconds=0, requests=3)))
    first = server.http.get(AB).json()["comparison"]
    assert first["blocks"] == 0
    assert {row["verdict"] for row in first["differences"]["long"]} == {"not measured yet"}
    slow, quick = sessions_of("long", 1), sessions_of("base", 1)
    for _ in range(24):
        ask(server, slow[0], prompt="ab", max_tokens=6, n=2)
        ask(server, quick[0], prompt="ab", max_tokens=2)
    now = server.http.get(AB).json()["comparison"]
    assert now["blocks"] == 7 and now["requests"]["long"]["completed"] == 48
    assert now["requests"]["base"]["output_tokens"] == 48
    rows = {row["metric"]: row for row in now["differences"]["long"]}
    assert rows["mean_e2el"]["base"] > 0 and rows["mean_e2el"]["repeats"] == 7
    assert rows["mean_e2el"]["low"] < rows["mean_e2el"]["change"]


# ------------------------------------------------------------------ how arms end


@pytest.mark.parametrize(
    ("action", "arm"),
    [("stop", "long"), pytest.param("promote", "base", marks=pytest.mark.slow), ("promote", "long")],
)
def test_nothing_is_lost_when_an_arm_ends_under_load(start: Start, action: str, arm: str) -> None:
    server = start(other=Other(engine={"scheduler": "ljf"}), engine={"max_num_seqs": 6})
    ending = "base" if (action, arm) == ("promote", "long") else "long"
    staying = "long" if ending == "base" else "base"
    bodies = [{"prompt": f"stream {number}: ", "max_tokens": 40, "n": 1 + number % 2} for number in range(32)]
    expected = [streamed(server, f"s{number}", **body) for number, body in enumerate(bodies)]
    pid = next(each.client.replicas[0].client.pid for each in server.arms.all if each.name == ending)
    with ThreadPoolExecutor(40) as pool:
        streams = [
            pool.submit(streamed, server, f"s{number}", **body, user="brisk")
            for number, body in enumerate(bodies)
        ]
        waiting = pool.submit(ask, server, sessions_of(ending, 1)[0], max_tokens=200)
        eventually(lambda: all(each.client.replicas[0].client.streams for each in server.arms.all))
        assert server.post(AB, action=action, arm=arm).status_code == 200
        assert states(server)[ending] in ("draining", "stopped")
        later = [ask(server, session) for session in sessions_of(ending, 5)]
        assert [stream.result() for stream in streams] == expected
        assert waiting.result().json()["choices"][0]["text"] == "ab" * 100
    assert {answer.headers[ARM_HEADER] for answer in later} == {staying}
    eventually(lambda: states(server) == {ending: "stopped", staying: "serving"})
    eventually(lambda: not alive(pid))
    assert server.http.get("/health").json() == {
        "status": "ok",
        "arms": {"base": states(server)["base"], "long": states(server)["long"]},
    }
    assert server.http.get("/admin/scheduler").status_code == 200, "there is one to mean"
    gone = server.http.get("/admin/kv", params={"arm": ending})
    assert gone.status_code == 409 and gone.json()["error"]["code"] == "arm_gone"
    assert server.http.get(AB).json()["comparison"]["over"] is True
    assert "turnout:" in server.http.get("/metrics").text


def streamed(server: RunningServer, session: str, **body: object) -> dict[int, str]:
    """The text of each choice."""
    whole = ask(server, session, stream=True, **body)
    *lines, done = [line.removeprefix("data: ") for line in whole.text.splitlines() if line]
    assert done == "[DONE]"
    found: dict[int, str] = {}
    for choice in (choice for line in lines for choice in json.loads(line)["choices"]):
        found[choice["index"]] = found.get(choice["index"], "") + choice["text"]
    return found


def test_an_arm_waits_for_a_client_that_reads_slowly_only_as_long_as_the_engine_works(start: Start) -> None:
    """The answer is the server's to keep; the engine need not stay for it."""
    server = start(other=Other())
    (session,) = sessions_of("long", 1)
    body = {"prompt": "ab", "max_tokens": 50, "stream": True, "user": "brisk"}
    with httpx.stream(
        "POST", f"{server.url}{COMPLETIONS}", json=body, headers={SESSION_HEADER: session}, timeout=20
    ) as response:
        server.post(AB, action="stop", arm="long")
        eventually(lambda: states(server)["long"] == "stopped")
        lines = [line for line in response.iter_lines() if line.startswith("data: {")]
    assert sum("text" in line for line in lines) >= 25


def test_an_arm_that_is_not_there_is_told_the_names(two: RunningServer) -> None:
    message = two.post(AB, action="stop", arm="nope").json()["error"]["message"]
    assert message == "there is no arm 'nope'; known: base, long"
    asked = two.http.get("/admin/kv", params={"arm": "nope"}).json()["error"]["message"]
    assert asked == "there is no arm 'nope'; known: ?arm=base or ?arm=long"


def test_the_last_arm_cannot_be_stopped(start: Start) -> None:
    server = start(other=Other())
    assert server.post(AB, action="stop", arm="long").status_code == 200
    assert server.post(AB, action="stop", arm="long").status_code == 200, "asked twice, done once"
    refused = server.post(AB, action="stop", arm="base")
    assert refused.status_code == 409 and refused.json()["error"]["code"] == "last_arm"
    assert server.post(AB, action="promote", arm="long").status_code == 409
    assert server.post(AB, action="promote", arm="base").status_code == 200
    assert ask(server, "s").headers[ARM_HEADER] == "base"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"action": "stop"}, "arm"),
        ({"action": "halt", "arm": "long"}, "action"),
        ({"action": "stop", "arm": "lnog"}, "arm"),
        ({"action": "stop", "arm": "long", "now": True}, "now"),
    ],
)
def test_what_is_wrong_is_named(two: RunningServer, body: dict[str, object], param: str) -> None:
    response = two.post(AB, **body)
    assert response.status_code == 400 and response.json()["error"]["param"] == param
    assert "?arm=" not in response.json()["error"]["message"], "the arm is named in the body"
    assert states(two) == {"base": "serving", "long": "serving"}


# ------------------------------------------------------------------ when one fails, or dies


def test_an_arm_whose_policy_fails_is_found_in_the_report(start: Start) -> None:
    """Its requests are served in arrival order, so that its figures say nothing of the policy."""
    server = start(other=Other(engine={"scheduler": "raising"}))
    for arm in ("base", "long"):
        assert ask(server, sessions_of(arm, 1)[0]).status_code == 200
    eventually(lambda: server.http.get(AB).json()["arms"][1]["policy_faults"])
    report = server.http.get(AB).json()
    assert report["arms"][0]["policy_faults"] == 0
    (finding,) = report["comparison"]["findings"]
    assert finding.startswith("long: ") and "of its scheduling policy could not be carried out" in finding


def kill(server: RunningServer, arm: str) -> None:
    (pid,) = [each.client.replicas[0].client.pid for each in server.arms.all if each.name == arm]
    os.kill(pid, signal.SIGKILL)


def test_one_engine_dies_and_no_request_of_either_arm_notices(start: Start) -> None:
    server = start(other=Other())
    with ThreadPoolExecutor(12) as pool:
        answers = {
            arm: [
                pool.submit(ask, server, session, prompt=f"{number}", max_tokens=80, user="brisk")
                for number, session in enumerate(sessions_of(arm, 5))
            ]
            for arm in ("base", "long")
        }
        eventually(lambda: all(len(each.client.replicas[0].client.streams) == 5 for each in server.arms.all))
        kill(server, "long")
        eventually(lambda: server.arms.all[1].client.restarting)
        health = server.http.get("/health")
        assert health.status_code == 503 and health.json()["arms"] == {
            "base": "serving",
            "long": "restarting",
        }
        for arm, mine in answers.items():
            assert {answer.result().headers[ARM_HEADER] for answer in mine} == {arm}
            texts = [answer.result().json()["choices"][0]["text"] for answer in mine]
            assert texts == [str(number) * 80 for number in range(5)]
    assert [arm["restarts"] for arm in server.http.get(AB).json()["arms"]] == [0, 1]
    assert server.http.get("/health").status_code == 200


def test_one_that_cannot_live_leaves_its_sessions_to_the_other(start: Start) -> None:
    server = start(other=Other(), engine_restarts=0)
    kill(server, "long")
    eventually(lambda: states(server)["long"] == "failed")
    assert server.http.get("/health").json() == {
        "status": "ok",
        "arms": {"base": "serving", "long": "failed"},
    }
    assert {ask(server, session).headers[ARM_HEADER] for session in sessions_of("long", 4)} == {"base"}
    (failed,) = [arm for arm in server.http.get(AB).json()["arms"] if arm["name"] == "long"]
    assert "SIGKILL" in failed["reason"]
    assert server.arms.failure is None
    kill(server, "base")
    eventually(lambda: server.arms.failure)
    assert server.http.get("/health").status_code == 503
    assert ask(server, "s").status_code == 503


@pytest.mark.parametrize("ending", ["stopped", "failed"])
def test_only_an_arm_that_was_stopped_is_to_have_no_engine(start: Start, ending: str) -> None:
    """The alert TurnoutEngineGone fires for arms that have restarts and no engine.

    It fired for ever after an arm was stopped."""
    server = start(other=Other(), engine_restarts=0)
    ask(server, *sessions_of("long", 1))
    if ending == "stopped":
        server.post(AB, action="promote", arm="base")
    else:
        kill(server, "long")
    eventually(lambda: states(server)["long"] == ending)
    assert _arms_with(server, "turnout:num_requests_running") == {"base"}
    restarts = _arms_with(server, "turnout:engine_restarts_total")
    assert restarts == ({"base"} if ending == "stopped" else {"base", "long"})
    assert _arms_with(server, "turnout:generation_tokens_total") == {"base", "long"}


def _arms_with(server: RunningServer, name: str) -> set[str]:
    families = text_string_to_metric_families(server.http.get("/metrics").text)
    return {each.labels["arm"] for family in families for each in family.samples if each.name == name}


def test_an_arm_that_is_being_stopped_serves_again_if_no_other_is_left(start: Start) -> None:
    server = start(other=Other(), engine_restarts=0)
    (session,) = sessions_of("long", 1)
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(ask, server, session, prompt="a", max_tokens=100, user="slow")
        eventually(lambda: server.arms.all[1].client.replicas[0].client.streams)
        server.post(AB, action="stop", arm="long")
        kill(server, "base")
        eventually(lambda: states(server) == {"base": "failed", "long": "serving"})
        assert ask(server, sessions_of("base", 1)[0]).headers[ARM_HEADER] == "long"
        assert held.result().json()["choices"][0]["text"] == "a" * 100
