"""``GET /metrics``, for Prometheus."""

from __future__ import annotations

import asyncio

from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from turnout.server.ab.arms import ServedArm
from turnout.server.api.context import Context, context_of
from turnout.server.http.access.auth import by_admin
from turnout.server.http.openapi.operation import operation
from turnout.server.metrics.arm_metrics import ByArm, Together
from turnout.server.metrics.engine_metrics import Scrape

__all__ = ["metrics"]


@operation(answer=None, media_type="text/plain")
async def metrics(request: Request) -> Response:
    """Shows metrics for Prometheus."""
    context = context_of(request)
    arms = context.arms
    scrapes = await asyncio.gather(*(_scrape(context, arm) for arm in arms.all))
    collected: Collector = scrapes[0]
    if arms.trial is not None:
        collected = ByArm({arm.name: scrape for arm, scrape in zip(arms.all, scrapes, strict=True)})
    if by_admin(request):
        collected = Together([collected, context.key_metrics])
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(collected), media_type=content_type)


async def _scrape(context: Context, arm: ServedArm) -> Scrape:
    client = arm.client
    snapshot = await context.kv_stats[arm.name].latest() if arm.active else None
    serving = arm.active and client.failure is None and not client.restarting
    return Scrape(
        context.metrics[arm.name].registry,
        context.model_name,
        client.restarts,
        client.stats if serving else None,
        snapshot if serving else None,
        client.ready.kv_bytes_per_token,
    )
