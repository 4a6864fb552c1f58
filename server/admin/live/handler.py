"""``GET /admin/live``: what the engines do, as it happens."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from turnout.core.types.live.event import LiveEvent
from turnout.server.admin.live.feed import LiveFeed
from turnout.server.api.respond import EventStream
from turnout.server.http.openapi.operation import EVENTS, operation
from turnout.server.http.request_memory import held_memory

__all__ = ["feed_of", "show_live"]


@operation(answer=LiveEvent, media_type=EVENTS)
async def show_live(request: Request) -> Response:
    """Streams what engines, requests and policies do, four times a second at most."""
    return EventStream(feed_of(request).events(), held_memory(request))


def feed_of(request: Request) -> LiveFeed:
    feed: LiveFeed = request.app.state.live
    return feed
