"""Comments before a response, and what becomes of the response then."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from turnout.server.fleet.models.waiting import WaitingRequests
from turnout.server.http import early_events
from turnout.server.http.early_events import EarlyEventsMiddleware, with_comments


def answer(path: str, seconds: float, response: Response) -> tuple[int, str]:
    """The status and the body that a client gets of a handler which works so long for its response."""

    async def handler(request: Request) -> Response:
        await with_comments(request, asyncio.sleep(seconds), lambda: "loading\nchat")
        return response

    app = EarlyEventsMiddleware(Starlette(routes=[Route(path, handler, methods=["POST"])]))
    sent: list[Any] = []

    async def receive() -> Any:
        await asyncio.sleep(60)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b""}
    asyncio.run(app(scope, receive, send))
    starts = [message for message in sent if message["type"] == "http.response.start"]
    assert len(starts) == 1 and not sent[-1].get("more_body", False)
    return starts[0]["status"], b"".join(message.get("body", b"") for message in sent[1:]).decode()


ERROR = {"error": {"message": "no room", "type": "server_error", "param": None, "code": "x"}}
COMMENT = ": loading chat\n\n"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_events, "EVERY_SECONDS", 0.01)


def test_a_stream_goes_on_after_its_comments() -> None:
    status, text = answer("/v1/completions", 0.05, StreamingResponse(iter([b"data: 1\n\n"])))
    assert status == 200 and text.endswith("data: 1\n\n") and text.startswith(COMMENT)
    assert not text.replace(COMMENT, "").removesuffix("data: 1\n\n")


def test_what_takes_no_time_has_no_comment_and_keeps_its_status() -> None:
    assert answer("/v1/completions", 0, JSONResponse(ERROR, 503))[0] == 503


def test_an_error_becomes_an_event_in_the_form_of_its_api() -> None:
    def event(path: str) -> str:
        status, text = answer(path, 0.05, JSONResponse(ERROR, 503))
        assert status == 200
        return text.replace(COMMENT, "")

    data, done = event("/v1/chat/completions").removeprefix("data: ").split("\n\n", 1)
    assert json.loads(data) == ERROR and done == "data: [DONE]\n\n"
    assert event("/v1/messages").startswith("event: error\ndata: {")
    name, data = event("/v1/responses").split("\ndata: ")
    told = {"type": "error", "sequence_number": 0, "code": "x", "message": "no room", "param": None}
    assert name == "event: error" and json.loads(data) == told
    assert "[DONE]" not in event("/infill")


@pytest.mark.parametrize("turns", range(5))
def test_a_client_that_leaves_as_it_is_let_in_is_not_waited_for(turns: int) -> None:
    """Its model counted as busy for good, and was never unloaded."""

    async def left() -> WaitingRequests:
        waiting = WaitingRequests(10, 60)
        scope = {"type": "http", "method": "POST", "path": "/", "headers": [], "query_string": b""}
        asking = asyncio.create_task(with_comments(Request(scope), waiting.enter(), str))
        await asyncio.sleep(0.01)
        waiting.open = True
        waiting.let_in()
        for _ in range(turns):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait({asking})
        if not asking.cancelled():
            asking.result().begun()
        return waiting

    assert asyncio.run(left()).entering == 0
