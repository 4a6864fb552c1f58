"""An engine that computes nothing and gives every request a token at a set pace, for measuring servers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from turnout.config import EngineConfig
from turnout.core.clock import monotonic
from turnout.core.engine.admission import Limits
from turnout.core.engine.engine import Engine
from turnout.core.interfaces.decoding import Decoding
from turnout.core.interfaces.kv import PoolSize
from turnout.core.registry.registry import Registry
from turnout.core.scheduling.scheduler import Capacity, Scheduler
from turnout.core.types.decision import Continuation
from turnout.core.types.messages import Ready
from turnout.core.types.plan import Logits, Plan
from turnout.core.types.request import Request
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.evictions.lru import Lru
from turnout.plugins.kv_backends.paged.host.cache import PagedCache
from turnout.plugins.predictors.max_tokens import MaxTokens

__all__ = ["PACE", "build"]

PACE = "PACED_ENGINE_STEP"
"""The environment's variable that says how long a step takes, in seconds."""
CONTEXT = 4096


class Paced:
    """A runner whose steps begin `seconds` after one another."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._next = 0.0

    def run(self, plan: Plan) -> Logits:
        now = time.monotonic()
        time.sleep(max(0.0, self._next - now))
        self._next = max(now, self._next) + self._seconds
        return Logits([], {chunk.sequence: range(chunk.rows) for chunk in plan.chunks if chunk.rows})  # type: ignore[arg-type]


class Repeating(Decoding):
    """Says the prompt over and over."""

    def accepts(self, params: SamplingParams) -> bool:
        return True

    def decide(self, requests: Sequence[Request], logits: Logits) -> Iterable[Continuation]:
        for request in requests:
            (sequence,) = request.live
            yield Continuation(sequence, [request.prompt[len(sequence.tokens) % len(request.prompt)]])


@dataclass
class PacedEngine:
    """As `AssembledEngine`, without a model."""

    engine: Engine
    ready: Ready
    registry: Registry
    scheduler: str = "fcfs"

    def set_scheduler(self, spec: str) -> str:
        raise NotImplementedError


def build(config: EngineConfig) -> PacedEngine:
    """What ``--factory engines.paced:build`` names."""
    registry = Registry.load()
    kv = PagedCache(PoolSize(config.max_num_seqs * CONTEXT), 16, Lru())
    capacity = Capacity(config.max_num_seqs * 64, config.max_num_seqs)
    scheduler = Scheduler(registry.create("scheduler", "fcfs"), kv, capacity, MaxTokens())
    limits = Limits(CONTEXT, 1 << 20, 1000, frozenset())
    engine = Engine(scheduler, Paced(float(os.environ[PACE])), [Repeating()], limits, monotonic)
    ready = Ready(
        model=config.model,
        max_model_len=CONTEXT,
        vocab_size=limits.vocab_size,
        defaults={},
        kv="paged",
        kv_bytes_per_token=1,
        summary=[],
    )
    return PacedEngine(engine, ready, registry)
