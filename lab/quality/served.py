"""Predictions of an engine as it serves: by its own steps, read from its own KV memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

from turnout.core.engine.engine import Engine
from turnout.core.interfaces.kv import Span
from turnout.core.types.plan import Chunk, Plan
from turnout.core.types.request import Request, RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.lab.quality.perplexity import PIECE, Predict
from turnout.plugins.decoding.greedy import Greedy

__all__ = ["of_engine"]


def of_engine(engine: Engine) -> Predict:
    """Predictions of an engine that serves no requests meanwhile; its scheduler and decoding are left out."""
    kv, runner = engine.scheduler.kv, engine.runner

    def predict(tokens: Sequence[int]) -> Iterator[Tensor]:
        spec = RequestSpec(id="predicted", prompt=list(tokens), params=SamplingParams(), seed=0)
        (sequence,) = Request(spec, Greedy(), 0.0, len(tokens), frozenset()).live
        if not kv.reserve([Span(sequence, 0, len(tokens))]):
            raise RuntimeError(f"a KV pool of {kv.capacity:,} positions has no room for {len(tokens):,}")
        try:
            for start in range(0, len(tokens), PIECE):
                part = sequence.tokens[start : start + PIECE]
                yield runner.run(Plan([Chunk(sequence, start, part, len(part))], kv.drain())).values
        finally:
            kv.release([sequence])

    return predict
