"""``GET /admin/kv``: the state of the KV pool."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import Response

from turnout.core.errors import RequestError
from turnout.core.types.messages import KVGroupState, KVSnapshot, Ready, ShowKV
from turnout.server.api.context import context_of
from turnout.server.http.admin_client import fetch
from turnout.server.http.json_response import JsonResponse
from turnout.server.http.openapi.operation import ARM, MODEL, Parameter, operation

__all__ = ["KVBytes", "KVReport", "show_kv"]


class KVBytes(msgspec.Struct):
    """The sizes of a `KVSnapshot`, in bytes."""

    capacity: int
    free: int
    held: int
    shared: int
    computed: int
    cached: int
    pinned: int
    swap: int
    swapped: int


class KVReport(msgspec.Struct, kw_only=True):
    """The fields of a `KVSnapshot`, with the sizes in bytes and the ratios worked out."""

    backend: str
    """The KV backend, as `--kv` has it."""
    bytes_per_token: int
    """Bytes of a position, over all layers."""
    unit: int
    """Positions in a block."""
    capacity: int
    free: int
    held: int
    shared: int
    computed: int
    cached: int
    passed: int
    pinned: int
    swap: int
    swapped: int
    groups: list[KVGroupState]
    bytes: KVBytes
    """The same sizes in bytes."""
    waste: float
    """Share of `held` without a computed token: the ends of last blocks, and what is reserved ahead."""
    lookups: int
    hits: int
    hit_rate: float
    """`hits` divided by `lookups`; 0 before the first look-up."""
    evictions: int
    states: list[tuple[str, int]] | UnsetType = UNSET
    """With `?map=true` only: the pool from its start, as runs of blocks, each `free`, `cached`, `held` or
    `shared`. Enough to draw it."""


MAP = Parameter("map", "Whether to show the pool's blocks.", choices=("true", "false"))


@operation(answer=KVReport, parameters=(MODEL, ARM, MAP))
async def show_kv(request: Request) -> Response:
    """Shows the KV pool."""
    with_map = _with_map(request)
    with context_of(request).named_arm(request) as arm:
        snapshot = await fetch(arm.client, ShowKV(with_map), KVSnapshot)
        return JsonResponse(_report(snapshot, arm.client.ready, with_map=with_map))


def _with_map(request: Request) -> bool:
    given = request.query_params.get("map", "false")
    if given not in ("true", "false"):
        raise RequestError(f"map must be true or false, not {given!r}", "map")
    return given == "true"


def _report(snapshot: KVSnapshot, ready: Ready, *, with_map: bool) -> KVReport:
    fields = asdict(snapshot)
    sizes = {name: fields[name] * ready.kv_bytes_per_token for name in KVBytes.__struct_fields__}
    if not with_map:
        fields["states"] = UNSET
    return KVReport(
        backend=ready.kv,
        bytes_per_token=ready.kv_bytes_per_token,
        bytes=KVBytes(**sizes),
        waste=round(snapshot.waste, 4),
        hit_rate=round(snapshot.hit_rate, 4),
        **fields,
    )
