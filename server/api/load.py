"""``GET /load``."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from turnout.server.api.context import context_of
from turnout.server.http.json_response import JsonResponse

__all__ = ["show_load"]


async def show_load(request: Request) -> Response:
    """Counts the requests that are being answered, for load balancers."""
    return JsonResponse({"server_load": context_of(request).load.requests})
