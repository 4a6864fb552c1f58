"""``/openapi.json``, and ``/docs``: the same for people, without scripts or anything from elsewhere."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from turnout.server.http.json_response import JsonResponse
from turnout.server.http.openapi.document import Endpoint, document, endpoints
from turnout.server.http.openapi.operation import operation

__all__ = ["show_docs", "show_openapi"]

FOLDER = Path(__file__).parent
STYLE = (FOLDER / "page.css").read_text(encoding="utf-8")
_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
HEADERS = {
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


@operation()
async def show_openapi(request: Request) -> Response:
    """Describes every path, as OpenAPI 3.1."""
    found = await asyncio.to_thread(document, endpoints(request.app.routes))
    servers = [{"url": request.app.state.context.config.root_path or "/"}]
    return JsonResponse({**found, "servers": servers})


@operation(answer=None, media_type="text/html")
async def show_docs(request: Request) -> Response:
    """Describes every path, for people."""
    content = await asyncio.to_thread(_page, endpoints(request.app.routes))
    return Response(content, media_type="text/html", headers=HEADERS)


@cache
def _page(served: tuple[Endpoint, ...]) -> str:
    environment = Environment(loader=FileSystemLoader(FOLDER), autoescape=True)
    environment.filters["told"] = told
    found = document(served)
    return environment.get_template("page.html").render(api=found, style=STYLE, form=form_of)


def told(text: str) -> Markup:
    """A description, with what stands between backticks as code."""
    parts = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else part for number, part in enumerate(parts)
    )


def form_of(schema: dict[str, Any]) -> str:
    """A schema in a few words: "list of Message", "string or null"."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if ways := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(map(form_of, ways)))
    if "enum" in schema or "const" in schema:
        return " or ".join(repr(value) for value in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type", "anything")
    if isinstance(kind, list):
        return " or ".join(kind)
    return f"list of {form_of(schema['items'])}" if kind == "array" and schema.get("items") else str(kind)
