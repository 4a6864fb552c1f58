"""OpenAI's client, in its strictest mode, goes on from responses that the server keeps."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from asking import strict_client
from running_server import Start, eventually
from tiny_server import TinyServer, serving

MODEL = "turnout-tiny"
ASKED = "def add(a, b):"
KEYS = ("alice-key", "bob-key")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinyServer]:
    file = tmp_path_factory.mktemp("store") / "responses.db"
    flags = [flag for key in KEYS for flag in ("--api-key", key)]
    flags += ["--event-interval", "0"]  # events of two streams are compared
    with serving("--response-store", str(file), *flags, key=KEYS[0]) as server:
        yield server


@pytest.fixture
def client(server: TinyServer) -> Iterator[openai.OpenAI]:
    with strict_client(server.url, KEYS[0]) as client:
        yield client


def ask(client: openai.OpenAI, asked: Any = ASKED, **fields: Any) -> Any:
    return client.responses.create(
        model=MODEL, input=asked, **{"max_output_tokens": 8, "temperature": 0, **fields}
    )


@pytest.mark.parametrize("streamed", [False, True])
def test_a_response_is_shown_as_it_was_answered(client: openai.OpenAI, streamed: bool) -> None:
    answered = ask(client, stream=streamed)
    if streamed:
        *_, last = answered
        answered = last.response
    assert answered.store is True
    assert client.responses.retrieve(answered.id) == answered


def test_a_conversation_goes_on_from_a_response(client: openai.OpenAI) -> None:
    first = ask(client)
    second = ask(client, "and then?", previous_response_id=first.id)
    whole = [
        {"role": "user", "content": ASKED},
        {"role": "assistant", "content": first.output_text},
        {"role": "user", "content": "and then?"},
    ]
    same = ask(client, whole, store=False)
    assert second.output_text == same.output_text and second.previous_response_id == first.id
    assert second.usage.input_tokens == same.usage.input_tokens
    third = ask(client, "more", previous_response_id=second.id)
    assert third.usage.input_tokens > second.usage.input_tokens + second.usage.output_tokens


def test_instructions_are_not_carried_on(client: openai.OpenAI) -> None:
    first = ask(client, instructions="Be as short as you can.")
    other = ask(client)
    lengths = {ask(client, "so?", previous_response_id=each.id).usage.input_tokens for each in (first, other)}
    assert len(lengths) == 1 and first.output_text != "", lengths


def test_what_is_not_to_be_stored_is_not(client: openai.OpenAI) -> None:
    response = ask(client, store=False)
    assert response.store is False
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)


def test_a_deleted_response_is_gone(client: openai.OpenAI) -> None:
    first = ask(client)
    second = ask(client, "so?", previous_response_id=first.id)
    client.responses.delete(first.id)
    for call in (client.responses.retrieve, client.responses.delete, client.responses.input_items.list):
        with pytest.raises(openai.NotFoundError, match=f"no response with the id {first.id}"):
            call(first.id)
    with pytest.raises(openai.NotFoundError, match=f"{first.id}, which {second.id} goes on from") as refused:
        ask(client, "more", previous_response_id=second.id)
    assert refused.value.code == "previous_response_not_found"
    assert refused.value.param == "previous_response_id"


def test_a_key_sees_only_its_own_responses(client: openai.OpenAI, server: TinyServer) -> None:
    response = ask(client)
    with strict_client(server.url, KEYS[1]) as other:
        for call in (other.responses.retrieve, other.responses.delete, other.responses.cancel):
            with pytest.raises(openai.NotFoundError):
                call(response.id)
        with pytest.raises(openai.NotFoundError):
            ask(other, previous_response_id=response.id)
    assert client.responses.retrieve(response.id).id == response.id


def test_input_items_come_in_pages(client: openai.OpenAI) -> None:
    call: Any = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
    items: Any = [
        {"role": "developer", "content": "Be short."},
        {"role": "user", "content": [{"type": "input_text", "text": ASKED}]},
        {"role": "assistant", "content": "Well."},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        call,
        {"type": "function_call_output", "call_id": "call_1", "output": "18"},
    ]
    response = ask(client, items)
    listed = list(client.responses.input_items.list(response.id, order="asc", limit=2))
    assert [each.type for each in listed] == [item.get("type", "message") for item in items]
    assert listed[2].content[0].text == "Well." and len({each.id for each in listed}) == len(items)
    assert list(client.responses.input_items.list(response.id, limit=4)) == listed[::-1]
    later = ask(client, "more", previous_response_id=response.id)
    everything = list(client.responses.input_items.list(later.id, order="asc"))
    assert everything[: len(items)] == listed and len(everything) == len(items) + len(response.output) + 1


def test_an_item_that_is_repeated_is_listed_once(client: openai.OpenAI) -> None:
    """Pages went in a circle: the one after the repeated item was the one after it had come first."""
    first = ask(client)
    again = {"type": "item_reference", "id": first.output[0].id}
    second = ask(client, [again, {"role": "user", "content": "so?"}], previous_response_id=first.id)
    listed = client.responses.input_items.list(second.id, limit=1, order="asc")
    ids = [item.id for item in islice(listed, 9)]
    assert len(set(ids)) == len(ids) == 3 and ids[1] == first.output[0].id


def test_a_refusal_is_kept_as_one(client: openai.OpenAI) -> None:
    """It was a 500: a refusal has its text under another name than other parts."""
    refusal = {"type": "refusal", "refusal": "I'd rather not."}
    items: Any = [
        {"role": "user", "content": ASKED},
        {"role": "assistant", "content": [refusal, {"type": "output_text", "text": "Sorry."}]},
        {"role": "user", "content": [refusal]},
    ]
    response = ask(client, items)
    said, asked = list(client.responses.input_items.list(response.id, order="asc"))[1:]
    assert said.content[0].to_dict() == refusal and said.content[1].text == "Sorry."
    assert asked.content[0].to_dict() == {"type": "input_text", "text": refusal["refusal"]}
    more = ask(client, "more", previous_response_id=response.id)
    answered = {"role": "assistant", "content": response.output_text}
    whole = [*items, answered, {"role": "user", "content": "more"}]
    assert more.usage.input_tokens == ask(client, whole, store=False).usage.input_tokens


def test_a_background_response_ends_by_itself(client: openai.OpenAI) -> None:
    begun = ask(client, background=True)
    assert begun.status == "in_progress" and begun.background is True and begun.output == []
    ended = settled(client, begun.id)
    assert ended.status == "incomplete" and ended.output_text == ask(client).output_text


def test_a_background_response_is_cancelled(client: openai.OpenAI) -> None:
    begun = ask(client, background=True, max_output_tokens=2000)
    cancelled = client.responses.cancel(begun.id)
    assert cancelled.status == "cancelled"
    assert client.responses.cancel(begun.id) == client.responses.retrieve(begun.id) == cancelled
    with pytest.raises(openai.BadRequestError, match="is cancelled"):
        ask(client, previous_response_id=begun.id)


def begun_stream(client: openai.OpenAI, **fields: Any) -> tuple[str, Any]:
    """The name of a response in the background, and the stream of its events."""
    stream = ask(client, background=True, stream=True, **fields)
    first = next(stream)
    assert first.type == "response.created" and first.response.background is True
    return first.response.id, stream


def test_a_background_response_is_streamed(client: openai.OpenAI) -> None:
    id, stream = begun_stream(client)
    events = list(stream)
    assert [event.sequence_number for event in events] == list(range(1, len(events) + 1))
    plain = [event.type for event in ask(client, stream=True)][1:]
    assert [event.type for event in events] == plain
    assert events[-1].response == client.responses.retrieve(id)
    assert events[-1].response.output_text == ask(client).output_text


def test_a_stream_is_read_on_from_any_event(client: openai.OpenAI) -> None:
    """While it goes on, and when it has ended."""
    id, stream = begun_stream(client, max_output_tokens=60)
    seen = [next(stream) for _ in range(9)]
    stream.close()
    later = list(client.responses.retrieve(id, stream=True, starting_after=seen[-1].sequence_number))
    assert later[-1].type == "response.incomplete"
    everything = list(client.responses.retrieve(id, stream=True))
    assert everything[1:] == [*seen, *later]
    for number in (0, 20, len(everything) - 2, len(everything) - 1, 10**6):
        assert (
            list(client.responses.retrieve(id, stream=True, starting_after=number))
            == everything[number + 1 :]
        )


def test_a_call_in_the_background_is_streamed(client: openai.OpenAI) -> None:
    tool: Any = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
    id, stream = begun_stream(client, tools=[tool], tool_choice="required", max_output_tokens=100)
    *_, last = stream
    assert last.response.output[0].type == "function_call"
    assert client.responses.retrieve(id) == last.response


def test_a_stream_ends_when_its_response_is_cancelled(client: openai.OpenAI) -> None:
    id, stream = begun_stream(client, max_output_tokens=2000)
    cancelled = client.responses.cancel(id)
    *_, last = stream
    assert last.type == "response.failed" and last.response == cancelled
    client.responses.delete(id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(id, stream=True)


def test_a_stream_of_another_client_is_not_there(client: openai.OpenAI, server: TinyServer) -> None:
    id, stream = begun_stream(client)
    with strict_client(server.url, KEYS[1]) as other, pytest.raises(openai.NotFoundError):
        other.responses.retrieve(id, stream=True)
    list(stream)


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("stream=true", "stream"),
        ("stream=maybe", "stream"),
        ("starting_after=1", "starting_after"),
        ("stream=true&starting_after=-1", "starting_after"),
        ("stream=true&starting_after=x", "starting_after"),
    ],
)
def test_events_that_are_not_there_are_refused(
    client: openai.OpenAI, server: TinyServer, query: str, param: str
) -> None:
    """The response was in no background."""
    url = f"{server.url}/v1/responses/{ask(client).id}?{query}"
    refused = httpx.get(url, headers=server.headers)
    assert refused.status_code == 400 and refused.json()["error"]["param"] == param


def test_items_are_referred_to(client: openai.OpenAI) -> None:
    first = ask(client, [{"role": "user", "content": ASKED}])
    (said,) = first.output
    (asked,) = client.responses.input_items.list(first.id)
    more = {"role": "user", "content": "and then?"}
    whole = ask(
        client,
        [{"role": "user", "content": ASKED}, {"role": "assistant", "content": first.output_text}, more],
    )
    for references in (
        [{"type": "item_reference", "id": asked.id}, {"type": "item_reference", "id": said.id}],
        [{"id": asked.id}, {"id": said.id}],
    ):
        referring = ask(client, [*references, more])
        assert referring.output_text == whole.output_text
        assert referring.usage.input_tokens == whole.usage.input_tokens
    listed = list(client.responses.input_items.list(referring.id, order="asc"))
    assert [item.id for item in listed[:2]] == [asked.id, said.id] and listed[1].content[
        0
    ].text == first.output_text
    client.responses.delete(first.id)
    assert ask(client, [{"id": said.id}, more]).output_text != "", "another response has the item, too"


def test_an_item_that_is_not_there_is_named(client: openai.OpenAI, server: TinyServer) -> None:
    (said,) = ask(client).output
    with pytest.raises(openai.NotFoundError, match=r"msg_0, which input\[1\] refers to") as refused:
        ask(client, [{"id": said.id}, {"type": "item_reference", "id": "msg_0"}])
    assert refused.value.param == "input" and refused.value.code == "item_not_found"
    with strict_client(server.url, KEYS[1]) as other, pytest.raises(openai.NotFoundError):
        ask(other, [{"id": said.id}])


def settled(client: openai.OpenAI, id: str) -> Any:
    deadline = time.monotonic() + 60
    while (response := client.responses.retrieve(id)).status == "in_progress":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return response


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"background": True, "store": False}, "store"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"input": [{"type": "item_reference"}]}, "input"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(
    client: openai.OpenAI, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, fields.pop("input", ASKED), **fields)
    assert refused.value.param == param


def test_only_background_responses_are_cancelled(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="not in the background"):
        client.responses.cancel(ask(client).id)


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "limit=999", "order=up", "after=msg_0"])
def test_a_page_that_is_none_is_refused(client: openai.OpenAI, server: TinyServer, query: str) -> None:
    url = f"{server.url}/v1/responses/{ask(client).id}/input_items?{query}"
    refused = httpx.get(url, headers=server.headers)
    assert refused.status_code == 400 and refused.json()["error"]["param"] == query.split("=")[0]


def test_what_cannot_be_stored_is_answered(start: Start, tmp_path: Path) -> None:
    server = start(response_store=str(tmp_path / "responses.db"), response_store_size=3000)
    small: dict[str, Any] = {"input": "a", "max_output_tokens": 4}
    large = {**small, "metadata": {"note": "x" * 3000}}
    stored, larger = (server.post("/v1/responses", **body).json() for body in (small, large))
    assert larger["status"] == "incomplete" and (stored["store"], larger["store"]) == (True, False)
    assert server.http.get(f"/v1/responses/{larger['id']}").status_code == 404
    streamed = server.post("/v1/responses", **large, stream=True).text
    assert '"type":"response.incomplete"' in streamed and '"store":false' in streamed.split("event: ")[-1]
    refused = server.post("/v1/responses", **large, background=True)
    assert refused.status_code == 507 and refused.json()["error"]["code"] == "storage_full"
    assert server.http.get(f"/v1/responses/{stored['id']}").json() == stored


def test_without_a_store_its_fields_are_refused_by_name(start: Start) -> None:
    server = start()
    for field, value in (("previous_response_id", "resp_1"), ("background", True)):
        error = server.post("/v1/responses", input="a", **{field: value}).json()["error"]
        assert error["param"] == field and "--response-store" in error["message"]
    refers = server.post("/v1/responses", input=[{"id": "msg_1"}])
    assert refers.status_code == 400 and "--response-store" in refers.json()["error"]["message"]
    shown = server.http.get("/v1/responses/resp_1")
    assert shown.status_code == 404 and shown.json()["error"]["code"] == "no_response_store"
    assert server.post("/v1/responses", input="a", store=True).json()["store"] is False


@pytest.mark.slow
def test_responses_outlive_the_server(tmp_path: Path) -> None:
    flags = ("--response-store", str(tmp_path / "responses.db"))
    with serving(*flags) as server, strict_client(server.url) as client:
        done, begun = ask(client), ask(client, background=True, max_output_tokens=2000)
        server.popen.kill()
        server.popen.wait()
    with serving(*flags) as server, strict_client(server.url) as client:
        assert client.responses.retrieve(done.id) == done
        lost = client.responses.retrieve(begun.id)
        assert lost.status == "failed" and "the server ended" in lost.error.message


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_in_the_background_that_the_engine_refuses_costs_its_key_nothing(
    start: Start, tmp_path: Path, stream: bool
) -> None:
    """The key was charged the tokens of the prompt, as it is not for any other request that is refused."""
    keys = tmp_path / "keys.yaml"
    keys.write_text("[{key: k, name: alice, tokens-per-minute: 1000}]")
    server = start(response_store=str(tmp_path / "responses.db"), api_key_file=str(keys))
    server.http.headers["Authorization"] = "Bearer k"
    asked = {"input": "a" * 512, "max_output_tokens": 10, "background": True, "stream": stream}
    answer = server.post("/v1/responses", **asked)
    assert answer.status_code == 200
    shown = "/v1/responses/" + re.search(r"resp_\w+", answer.text)[0]  # type: ignore[index]
    eventually(lambda: server.http.get(shown).json()["status"] == "failed")
    assert 'key_tokens_total{key="alice"} 0.0' in server.http.get("/metrics").text


def test_a_streamed_response_in_the_background_counts_once_for_its_key(start: Start, tmp_path: Path) -> None:
    """It took two of the requests that its key may have at once, for as long as its client read."""
    keys = tmp_path / "keys.yaml"  # the key's name is the client's, whom the engine serves slowly
    keys.write_text("[{key: k, name: slow, requests-in-flight: 2}]")
    server = start(response_store=str(tmp_path / "responses.db"), api_key_file=str(keys))
    server.http.headers["Authorization"] = "Bearer k"
    streamed = {"input": "a", "max_output_tokens": 100, "background": True, "stream": True}

    def status() -> int:
        return server.post("/v1/responses", input="a", max_output_tokens=1).status_code

    with server.http.stream("POST", "/v1/responses", json=streamed) as first:
        of_first = first.iter_lines()
        next(of_first)
        assert status() == 200
        with server.http.stream("POST", "/v1/responses", json=streamed) as second:
            of_second = second.iter_lines()
            next(of_second)
            assert status() == 429
