"""The embedded model, in the engine that serves: what a toy cannot show. A test takes seconds: it is slow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from turnout.config import EngineConfig
from turnout.core.engine.engine import Engine
from turnout.core.registry.registry import Registry
from turnout.core.types.messages import Delta
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.testing.checks.memory_leaks import assert_all_memory_is_free
from turnout.testing.suites.suite import shown

if TYPE_CHECKING:
    from turnout.runner.assembly import AssembledEngine

__all__ = ["GREEDY", "Embedded", "Tokens"]

MODEL = "turnout-tiny"
LENGTH = 96
"""Of a request at most, in tokens."""
SCARCE, AMPLE = 192, 4096
"""Positions of KV memory: for two requests of full length, and for all."""
OUTPUT = 24
"""Tokens of each answer at most."""
GREEDY = SamplingParams(temperature=0)
TEXTS = (
    "import os\nimport sys\n",
    "import os\nimport sys\n\n\ndef main():\n",
    "import os\nimport sys\n\n\nclass Queue:\n    def __init__(self",
    "for index, item in enumerate(",
    "def read(path):\n    with open(path",
    "class Node:\n    pass\n",
    "try:\n    return int(text)\nexcept",
    "x = [1, 2, 3]\ny = [1, 2, 3]\nz = [1, 2, 3]\nw = [1,",
)
"""Some start alike, some repeat themselves."""

Tokens = dict[tuple[str, int], list[int]]
"""By request and choice."""


class Embedded:
    """Serves a few requests by whatever plugins `registry` has, on one thread of a CPU in float32."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    def assemble(self, *, positions: int = AMPLE, **options: Any) -> AssembledEngine:
        """`options`: of `EngineConfig`."""
        from turnout.runner.assembly import build_engine
        from turnout.runner.checkpoint import open_checkpoint

        kv = self.registry.create("kv", options.get("kv", "paged"))
        positions = max(-(-positions // kv.unit), 4) * kv.unit
        position = kv.bytes_per_token(open_checkpoint(self.registry, MODEL).spec, 4)
        config = EngineConfig(
            model=MODEL,
            device="cpu",
            dtype="float32",
            max_model_len=LENGTH,
            max_num_batched_tokens=48,
            kv_memory=positions * position,
            **options,
        )
        return build_engine(config, registry=self.registry)

    def tokens(self, params: SamplingParams, **options: Any) -> Tokens:
        """All requests together."""
        return serve(self.assemble(**options).engine, _requests(_lengthened(params)))

    def unmoved(self, params: SamplingParams, **options: Any) -> Tokens:
        """The same, and they are the same alone, and where memory is so short that requests are preempted."""
        together = self.tokens(params, **options)
        engine = self.assemble(**options).engine
        for request in _requests(_lengthened(params))[:3]:
            alone = serve(engine, [request])
            assert alone.items() <= together.items(), f"{shown(params)}: other tokens alone than together"
        scarce = self.tokens(params, positions=SCARCE, **options)
        assert scarce == together, f"{shown(params)}: other tokens where memory is short"
        return together

    def scores(self, **options: Any) -> float:
        """The mean log-probability of the model's own texts, in nats a token."""
        params = SamplingParams(prompt_logprobs=0, max_tokens=1)
        deltas = _run(self.assemble(**options).engine, _requests(params))
        told = [entry.logprob for delta in deltas for entry in delta.prompt_logprobs or ()]
        return sum(told) / len(told)


def serve(engine: Engine, requests: Iterable[RequestSpec]) -> Tokens:
    tokens: Tokens = {}
    for delta in _run(engine, requests):
        tokens.setdefault((delta.request_id, delta.index), []).extend(delta.tokens)
    assert_all_memory_is_free(engine.scheduler.kv)
    return tokens


def _run(engine: Engine, requests: Iterable[RequestSpec]) -> list[Delta]:
    for request in requests:
        for work in engine.preparation(request):
            work()
        engine.add(request)
    deltas: list[Delta] = []
    for _ in range(5_000):
        if not engine.busy:
            break
        deltas += engine.step()
    assert not engine.busy, "not done after 5,000 steps: livelock"
    failed = next((delta for delta in deltas if delta.error), None)
    assert failed is None, f"request {failed.request_id} ended with an error: {failed.error}"
    faults = engine.stats().policy_faults
    assert not faults, f"the scheduling policy was at fault {faults} times: see the log"
    return deltas


def _lengthened(params: SamplingParams) -> SamplingParams:
    return msgspec.structs.replace(params, max_tokens=OUTPUT)


def _requests(params: SamplingParams) -> list[RequestSpec]:
    """Each with a seed that it names: what speculates promises the same tokens for those alone."""
    return [
        RequestSpec(
            id=f"r{number}",
            prompt=list(prompt),
            params=msgspec.structs.replace(params, seed=number),
            seed=number,
            client=f"c{number % 3}",
        )
        for number, prompt in enumerate(_prompts())
    ]


@cache
def _prompts() -> Sequence[Sequence[int]]:
    from turnout.models.hub.resolve import resolve_model
    from turnout.text.tokenizer import load_tokenizer

    folder: Path = resolve_model(MODEL)
    tokenizer = load_tokenizer(folder)
    return [tokenizer.encode(text) for text in TEXTS]
