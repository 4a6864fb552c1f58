"""``GET /admin/plugins``: the plugins that the engine's process found."""

from __future__ import annotations

from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import Response

from turnout.core.types.messages import ListPlugins, PluginStates
from turnout.server.api.context import context_of
from turnout.server.http.admin_client import fetch
from turnout.server.http.json_response import JsonResponse
from turnout.server.http.openapi.operation import ARM, MODEL, operation

__all__ = ["list_plugins"]


@operation(answer=PluginStates, parameters=(MODEL, ARM))
async def list_plugins(request: Request) -> Response:
    """Lists the plugins."""
    with context_of(request).named_arm(request) as arm:
        found = await fetch(arm.client, ListPlugins(), PluginStates)
    return JsonResponse({"plugins": [asdict(plugin) for plugin in found.plugins]})
