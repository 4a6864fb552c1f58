"""``/console``: the page that shows the server at work.

The page holds no data: what it shows, it asks of ``/admin`` and ``/v1``, with the keys that its reader gives.
"""

from __future__ import annotations

import gzip
import hashlib
from functools import cache

from starlette.requests import Request
from starlette.responses import Response

from turnout.server.admin.console.files import HEADERS, console_file
from turnout.server.http.errors import ApiError
from turnout.server.http.openapi.operation import operation

__all__ = ["show_console", "show_file"]


@operation(answer=None, media_type="text/html")
async def show_console(request: Request) -> Response:
    """Shows the server at work, in a browser."""
    return _answer(request, "")


@operation(answer=None, media_type="text/javascript")
async def show_file(request: Request) -> Response:
    """Sends a file that the console is made of."""
    return _answer(request, request.path_params["file"])


def _answer(request: Request, path: str) -> Response:
    found = console_file(path)
    if found is None:
        raise ApiError(404, f"the console has no file {path!r}", code="not_found")
    content, media_type = found
    headers = {**HEADERS, "ETag": _etag(content), "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
        content = _zipped(content)
    return Response(content, media_type=media_type, headers=headers)


@cache
def _etag(content: bytes) -> str:
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'


@cache
def _zipped(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)
