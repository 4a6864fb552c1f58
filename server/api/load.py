"""``GET /load``."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from turnout.server.api.context import context_of
from turnout.server.http.json_response import JsonResponse
from turnout.server.http.openapi.operation import fields, operation

__all__ = ["show_load"]


@operation(answer=fields("Load", server_load=int))
async def show_load(request: Request) -> Response:
    """Counts the requests that are being answered, for load balancers."""
    return JsonResponse({"server_load": context_of(request).load.requests})
