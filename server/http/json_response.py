"""A JSON response, encoded by msgspec."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

__all__ = ["JsonResponse"]


class JsonResponse(Response):
    """Its content may be a msgspec struct or plain data."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return msgspec.json.encode(content)
