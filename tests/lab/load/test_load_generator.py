"""The load generator against a server that does as it is told, over real sockets."""

from __future__ import annotations

from typing import Any

import pytest
from scripted_server import ScriptedServer, serving

from turnout.core.errors import ConfigError
from turnout.lab.jobs.job import Job, Workload
from turnout.lab.jobs.prompts import Prompts
from turnout.lab.load.generator import LoadRun, run_load
from turnout.lab.load.messages import TokenUsage
from turnout.lab.load.sender import StreamedAnswer
from turnout.lab.load.target import Target


def run(server: ScriptedServer, jobs: list[Job], concurrency: int | None = None, **how: Any) -> LoadRun:
    timeout = how.pop("timeout", None)
    with serving(server):
        target = Target.at(server.url, model="m", **how)
        return run_load(Workload("test", jobs, concurrency), target, Prompts(jobs, seed=0), timeout=timeout)


def test_a_request_is_sent_at_its_time_and_every_token_recorded() -> None:
    server = ScriptedServer(pause=0.01)
    load = run(server, [Job(0.0, 5, 4), Job(0.2, 7, 2)])
    first, second = load.records
    assert (first.error, first.prompt_tokens, first.output_tokens) == ("", 5, 4)
    assert len(first.token_times) == 4 and first.token_times == sorted(first.token_times)
    assert first.sent <= first.token_times[0] <= first.finished
    assert second.due == 0.2 <= second.sent
    assert load.duration == second.finished


def test_what_is_asked_for_is_the_job() -> None:
    server = ScriptedServer()
    run(server, [Job(0.0, 5, 4, client="ann", priority=2, ttft_deadline_ms=1500)], body={"temperature": 0.5})
    (body,) = server.asked
    assert len(body.pop("prompt")) == 5
    assert body == {
        "model": "m",
        "max_tokens": 4,
        "temperature": 0.5,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
        "user": "ann",
        "priority": 2,
        "ttft_deadline_ms": 1500,
    }


def test_texts_are_embedded_each_as_long_as_a_job() -> None:
    server = ScriptedServer()
    load = run(server, [Job(0.0, 5, 0), Job(0.0, 7, 0)], concurrency=1, endpoint="embeddings", texts=2)
    assert server.paths == ["/v1/embeddings"] * 2 and not load.warnings
    assert [[len(text) for text in body["input"]] for body in server.asked] == [[5, 7], [7, 5]]
    assert server.asked[0].keys() == {"model", "input", "encoding_format"}
    for record in load.records:
        assert (record.error, record.prompt_tokens, record.output_tokens) == ("", 12, 0)
        assert record.finished > record.sent and record.digest
    assert load.records[0].digest != load.records[1].digest


def test_documents_are_ranked_for_a_query() -> None:
    server = ScriptedServer()
    load = run(server, [Job(0.0, 5, 0)], endpoint="rerank", prompts="text", texts=3)
    (body,) = server.asked
    assert len(body["query"].split()) == 16 and [len(text.split()) for text in body["documents"]] == [5] * 3
    assert not load.warnings and load.records[0].prompt_tokens == 31
    with pytest.raises(ConfigError, match="the rerank endpoint takes text"):
        Target("http://a", endpoint="rerank")
    with pytest.raises(ConfigError, match="embeddings and rerank"):
        Target("http://a", texts=2)


def test_peers_that_do_not_know_ignore_eos_are_not_sent_it() -> None:
    server = ScriptedServer()
    run(server, [Job(0.0, 5, 4)], ignore_eos=False)
    assert "ignore_eos" not in server.asked[0]


def test_a_closed_loop_keeps_so_many_going() -> None:
    server = ScriptedServer(pause=0.02)
    load = run(server, [Job(0.0, 3, 2)] * 12, concurrency=3)
    assert server.most_at_once == 3 and len(load.records) == 12


def test_a_turn_comes_after_the_one_before_and_its_thinking() -> None:
    server = ScriptedServer(pause=0.02)
    jobs = [Job(0.0, 4, 3, session="a"), Job(0.0, 12, 2, session="a", think=0.1), Job(0.0, 4, 1)]
    first, second, other = run(server, jobs).records
    assert second.due == first.finished + 0.1 and second.sent >= second.due
    assert other.sent < first.finished
    prompts = [body["prompt"] for body in server.asked]
    longest = max(prompts, key=len)
    assert any(longest[:4] == prompt for prompt in prompts if len(prompt) == 4)


def test_a_chat_goes_on_with_what_the_server_answered() -> None:
    server = ScriptedServer()
    jobs = [Job(0.0, 3, 2, session="a"), Job(0.0, 8, 2, session="a", think=0.0)]
    run(server, jobs, endpoint="chat", prompts="text")
    assert server.paths == ["/v1/chat/completions"] * 2
    question, answer, next_question = server.asked[1]["messages"]
    assert [question] == server.asked[0]["messages"]
    assert len(question["content"].split()) == 3
    assert answer == {"role": "assistant", "content": " 0 1"}
    assert len(next_question["content"].split()) == 8 - 3 - 2


def test_text_prompts_have_a_word_for_each_token() -> None:
    server = ScriptedServer()
    load = run(server, [Job(0.0, 9, 2)], prompts="text")
    assert len(server.asked[0]["prompt"].split()) == 9
    assert load.records[0].prompt_tokens == 9


def test_equal_answers_have_equal_digests() -> None:
    same, also, other = run(ScriptedServer(), [Job(0.0, 5, 4), Job(0.0, 6, 4), Job(0.0, 5, 3)]).records
    assert same.digest == also.digest != other.digest


def test_tokens_that_came_in_one_message_have_one_time() -> None:
    (record,) = run(ScriptedServer(tokens_per_message=2, pause=0.01), [Job(0.0, 5, 6)]).records
    assert record.output_tokens == len(record.token_times) == 6
    assert len(set(record.token_times)) == 3 and len(record.itl) == 2


def test_the_last_token_counts_when_it_has_no_text() -> None:
    answer = StreamedAnswer([1.0, 2.0], usage=TokenUsage(5, 3), ended=2.5)
    assert answer.token_times() == [1.0, 2.0, 2.5]


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("refuse", "400: too long by 3 tokens"),
        ("error", "the server stopped with an error: the engine is gone"),
        ("silent", "no answer within 0.2 s"),
        ("cut", "payload is not completed"),
    ],
)
def test_what_goes_wrong_is_in_the_record(broken: str, message: str) -> None:
    load = run(ScriptedServer(broken=broken), [Job(0.0, 5, 4)], timeout=0.2)
    assert message in load.records[0].error
    assert any(warning.startswith("failed: 1:") for warning in load.warnings)


def test_counts_that_differ_from_what_was_asked_for_are_told() -> None:
    load = run(ScriptedServer(short_by=1), [Job(0.0, 5, 4), Job(0.0, 5, 4)])
    assert "outputs of another length than was asked for: 2" in load.warnings


def test_answers_without_usage_are_told() -> None:
    load = run(ScriptedServer(usage=False), [Job(0.0, 5, 4)])
    assert load.records[0].output_tokens == 4
    assert any("without usage" in warning for warning in load.warnings)


def test_the_chat_endpoint_takes_text() -> None:
    with pytest.raises(ConfigError, match="the chat endpoint takes text, not token ids"):
        Target.at("localhost:8000", endpoint="chat")


@pytest.mark.parametrize("address", ["localhost:8000", "http://localhost:8000/v1/", "http://localhost:8000"])
def test_an_address_may_have_what_it_needs_not(address: str) -> None:
    assert Target.at(address).url == "http://localhost:8000"


@pytest.mark.parametrize("address", ["", "ftp://host", "host:port"])
def test_an_address_that_is_not_a_servers_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="not the address of a server"):
        Target.at(address)
