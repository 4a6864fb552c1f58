"""Paths of Ollama's API that this server refuses: it serves one model, which it was started with."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from turnout.server.http.errors import ApiError
from turnout.server.http.openapi.operation import operation

__all__ = ["refuse_change"]


@operation(refused=True)
async def refuse_change(request: Request) -> Response:
    """Is refused: the server serves the model that it was started with."""
    name = request.url.path.rpartition("/api/")[2].partition("/")[0]
    raise ApiError(
        400,
        f"/api/{name} is not supported: Turnout serves the model that it was started with; GET /api/tags "
        "names it, and `turnout serve MODEL` serves another",
    )
