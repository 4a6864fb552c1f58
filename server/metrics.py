"""``GET /metrics``, for Prometheus."""

from __future__ import annotations

from prometheus_client.exposition import choose_encoder
from starlette.requests import Request
from starlette.responses import Response

from turnout.server.context import context_of
from turnout.server.engine_metrics import Scrape

__all__ = ["metrics"]


async def metrics(request: Request) -> Response:
    context = context_of(request)
    client = context.client
    snapshot = await context.kv_watch.latest()
    serving = client.failure is None and not client.restarting
    scrape = Scrape(
        context.metrics.registry,
        context.model_name,
        client.restarts,
        client.stats if serving else None,
        snapshot if serving else None,
        client.ready.kv_bytes_per_token,
    )
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(scrape), media_type=content_type)
