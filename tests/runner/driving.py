"""Serving requests with an engine, in the test's own thread."""

from __future__ import annotations

from collections.abc import Sequence

from turnout.core.engine.engine import Engine
from turnout.core.types.messages import Delta
from turnout.core.types.request import RequestSpec

KV_BYTES_PER_TOKEN = 2 * 2 * 2 * 16 * 4
"""Keys and values, layers, KV heads, head dim, fp32: of the random model."""


def run(engine: Engine, specs: Sequence[RequestSpec]) -> dict[tuple[str, int], list[int]]:
    """Serve `specs` together; tokens by request id and choice."""
    for spec in specs:
        engine.add(spec)
    tokens: dict[tuple[str, int], list[int]] = {}
    for delta in drain(engine):
        tokens.setdefault((delta.request_id, delta.index), []).extend(delta.tokens)
    assert engine.scheduler.kv.free == engine.scheduler.kv.capacity
    return tokens


def drain(engine: Engine) -> list[Delta]:
    deltas: list[Delta] = []
    while engine.busy:
        deltas += engine.step()
    assert not any(delta.error for delta in deltas), deltas
    return deltas
