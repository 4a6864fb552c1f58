"""A JSON response of plain structs."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from turnout.server.protocol.responses import encode

__all__ = ["JsonResponse"]


class JsonResponse(Response):
    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return encode(content)
