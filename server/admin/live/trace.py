"""``GET /admin/trace``: a record of some seconds, for Perfetto or for ``turnout view``."""

from __future__ import annotations

import asyncio

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnout.core.engine.recording.perfetto import perfetto_trace
from turnout.core.errors import RequestError
from turnout.core.types.live.event import LiveEvent, TraceFile
from turnout.server.admin.live.handler import feed_of
from turnout.server.http.disconnect import while_connected
from turnout.server.http.json_response import JsonResponse
from turnout.server.http.openapi.operation import Parameter, operation

__all__ = ["show_trace"]

LEAST_SECONDS, MOST_SECONDS, SECONDS_UNLESS_GIVEN = 0.5, 60.0, 5.0
SECONDS = Parameter(
    "seconds",
    f"How long to record, from {LEAST_SECONDS:g} to {MOST_SECONDS:g}; {SECONDS_UNLESS_GIVEN:g} unless given.",
    "number",
    least=LEAST_SECONDS,
    most=MOST_SECONDS,
    default=SECONDS_UNLESS_GIVEN,
)
FORMAT = Parameter(
    "format", "`perfetto` unless given; `live`: for `turnout view`.", choices=("perfetto", "live")
)


@operation(parameters=(SECONDS, FORMAT))
async def show_trace(request: Request) -> Response:
    """Records what engines, requests and policies do, and answers with the trace."""
    seconds, form = _seconds(request), request.query_params.get("format", "perfetto")
    if form not in FORMAT.choices:
        raise RequestError(f"format must be perfetto or live, not {form!r}", "format")
    events = await while_connected(request.receive, feed_of(request).record(seconds))
    body = await asyncio.to_thread(_written, events, form)
    return Response(body, media_type=JsonResponse.media_type)


def _seconds(request: Request) -> float:
    given = request.query_params.get("seconds", str(SECONDS_UNLESS_GIVEN))
    try:
        seconds = float(given)
    except ValueError:
        seconds = -1.0
    if not LEAST_SECONDS <= seconds <= MOST_SECONDS:
        bounds = f"from {LEAST_SECONDS:g} to {MOST_SECONDS:g}"
        raise RequestError(f"seconds must be a number {bounds}, not {given[:40]!r}", "seconds")
    return seconds


def _written(events: list[LiveEvent], form: str) -> bytes:
    return msgspec.json.encode(perfetto_trace(events) if form == "perfetto" else TraceFile(events=events))
