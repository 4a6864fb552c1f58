"""``GET /metrics``, for Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace
from prometheus_client import exposition
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector, CollectorRegistry
from starlette.requests import Request
from starlette.responses import Response

from turnout.core.types.messages import Stats
from turnout.server.api.context import Context, context_of
from turnout.server.fleet.arms import ServedArm
from turnout.server.fleet.models.hosted_model import HostedModel
from turnout.server.fleet.replica import FleetReplica
from turnout.server.http.access.auth import by_admin
from turnout.server.http.bodies.pace import Pace
from turnout.server.http.openapi.operation import operation
from turnout.server.metrics.arm_metrics import Labelled, Merged, Together
from turnout.server.metrics.engine_metrics import Scrape
from turnout.server.metrics.figures import Summed, figures_of
from turnout.server.metrics.kv_stats import MAX_WAIT_SECONDS
from turnout.server.metrics.model_metrics import ModelScrape
from turnout.server.metrics.vllm_names import named

__all__ = ["collected", "measured", "metrics", "own_figures", "summed_figures"]

OPENMETRICS = "application/openmetrics-text"
AS_BYTES = 2**18
"""So many bytes of a body take as long as metrics, 2 ms: of a hundred that are asked for at once, one is
written in a turn of the event loop."""


@operation(answer=None, media_type="text/plain")
async def metrics(request: Request) -> Response:
    """Shows metrics for Prometheus."""
    context = context_of(request)
    found = await collected(context, keys=by_admin(request))
    pace: Pace = request.app.state.pace
    await pace.take(AS_BYTES)
    return _written(found, request.headers.get("accept", ""))


async def collected(context: Context, *, keys: bool) -> Collector:
    """All metrics; with those of named keys, or without."""
    merged = Merged(await asyncio.gather(*map(_of_model, context.each)))
    found: Collector = named(merged, context.config.metrics_names)
    return Together([found, context.key_metrics]) if keys else found


def _written(collected: Collector, accept: str) -> Response:
    """In the text format, or in OpenMetrics for clients that take it."""
    if any(each.partition(";")[0].strip() == OPENMETRICS for each in accept.split(",")):
        # Not by `choose_encoder`: it has names escaped, and thereby writes ':' as '_' in samples.
        body = openmetrics.generate_latest(collected, escaping=openmetrics.ALLOWUTF8)  # type: ignore[no-untyped-call]
        return Response(body, media_type=openmetrics.CONTENT_TYPE_LATEST)
    return Response(exposition.generate_latest(collected), media_type=exposition.CONTENT_TYPE_PLAIN_0_0_4)


async def _of_model(context: Context) -> Collector:
    """Of a model, by arm if it has two."""
    arms, loaded = context.arms, _loaded(context.served)
    if not arms.first.client.described:
        return loaded
    scrapes = await asyncio.gather(*(_scrape(context, arm) for arm in arms.all))
    if arms.trial is None:
        return Together([loaded, scrapes[0]])
    return Labelled("arm", {arm.name: scrape for arm, scrape in zip(arms.all, scrapes, strict=True)})


def _loaded(model: HostedModel) -> ModelScrape:
    residence = model.residence
    return ModelScrape(
        model.name, loaded=model.loaded, waiting=len(residence.requests), loads=residence.loads
    )


def own_figures(context: Context) -> bytes:
    """What a front measures, for `Summed`."""
    (arm,) = context.arms.all
    return figures_of(context.about(context.served).metrics[arm.name].registry)


def summed_figures(figures: Sequence[bytes]) -> bytes:
    """What several fronts have measured, as one that has measured all of it."""
    return figures_of(Summed(CollectorRegistry(), figures))


async def measured(context: Context, arm: ServedArm, names: Sequence[str] = ()) -> Collector:
    """What the server measures, in all its processes. names: of the samples that are wanted; all if empty."""
    registry = context.metrics[arm.name].registry
    own: Collector = registry.restricted_registry(names) if names else registry
    return own if context.fronts is None else Summed(own, await context.fronts.measured())


async def _scrape(context: Context, arm: ServedArm) -> Collector:
    """Of an arm: what the server measures, then what its engines report, by replica if it has had several.

    A stopped arm is to have no engine: without `engine_restarts`, no alert takes that for a fault.
    """
    replicas, own = arm.client.replicas, await measured(context, arm)
    if not replicas or arm.state == "stopped":
        return own
    scrapes = await asyncio.gather(*(_engine(context, arm, replica) for replica in replicas))
    engines: Collector = scrapes[0]
    if arm.client.had_several:
        named = zip(replicas, scrapes, strict=True)
        engines = Labelled("replica", {replica.name: scrape for replica, scrape in named})
    return Together([own, engines])


async def _engine(context: Context, arm: ServedArm, replica: FleetReplica) -> Scrape:
    client = replica.client
    serving = arm.active and replica.reports
    snapshot = await context.kv_stats.latest(client) if serving else None
    return Scrape(
        context.model_name,
        client.restarts,
        _stats(replica) if serving else None,
        snapshot,
        arm.client.ready.kv_bytes_per_token,
        arm.client.ready.ranks,
    )


def _stats(replica: FleetReplica) -> Stats | None:
    """The engine's latest report; of one that hangs since, with what was sent to it meanwhile: it waits."""
    stats = replica.client.stats
    if stats is None or replica.client.silence < MAX_WAIT_SECONDS:
        return stats
    return replace(stats, waiting=max(stats.waiting, replica.requests - stats.running))
