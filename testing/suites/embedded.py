"""Serves the embedded model by the real engine, for what a toy cannot show. Its tests take seconds."""

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
from turnout.testing.checks.messages import shown

if TYPE_CHECKING:
    from turnout.runner.assembly import AssembledEngine

__all__ = ["GREEDY", "Embedded", "Tokens"]

MODEL = "turnout-tiny"
LENGTH = 96
"""Tokens of a request, at most."""
SCARCE, AMPLE = 192, 4096
"""Positions of KV memory: enough for two requests of full length, and for all."""
OUTPUT = 24
"""Tokens of each answer, at most."""
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
"""Some have a common start, some repeat themselves."""

Tokens = dict[tuple[str, int], list[int]]
"""By request and choice."""


class Embedded:
    """Serves a few requests with the plugins of `registry`, on one thread of a CPU, in float32."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    def assemble(self, *, positions: int = AMPLE, **options: Any) -> AssembledEngine:
        """positions: of KV memory. options: fields of `EngineConfig`."""
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
        """Serve all requests together."""
        return serve(self.assemble(**options).engine, _requests(_lengthened(params)))

    def unmoved(self, params: SamplingParams, **options: Any) -> Tokens:
        """As `tokens`; fails unless they are the same alone, and where scarce memory causes preemptions."""
        together = self.tokens(params, **options)
        engine = self.assemble(**options).engine
        for request in _requests(_lengthened(params))[:3]:
            alone = serve(engine, [request])
            assert alone.items() <= together.items(), (
                f"a request got other tokens when served alone than together with others; expected the same: "
                f"{shown(params)}"
            )
        scarce = self.tokens(params, positions=SCARCE, **options)
        assert scarce == together, (
            "requests got other tokens where memory is so scarce that they are preempted; expected the "
            f"same: {shown(params)}"
        )
        return together

    def scores(self, **options: Any) -> float:
        """The mean log-probability of the texts under the model, in nats per token."""
        params = SamplingParams(prompt_logprobs=0, max_tokens=1)
        deltas = _run(self.assemble(**options).engine, _requests(params))
        logprobs = [entry.logprob for delta in deltas for entry in delta.prompt_logprobs or ()]
        return sum(logprobs) / len(logprobs)


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
    assert not engine.busy, "not all requests had ended after 5,000 steps; expected progress in every step"
    failed = next((delta for delta in deltas if delta.error), None)
    assert failed is None, f"request {failed.request_id} ended with an error: {failed.error}"
    faults = engine.stats().policy_faults
    assert not faults, (
        f"the engine replaced {faults} answers of the scheduling policy, which broke its contract; see the "
        "log"
    )
    return deltas


def _lengthened(params: SamplingParams) -> SamplingParams:
    return msgspec.structs.replace(params, max_tokens=OUTPUT)


def _requests(params: SamplingParams) -> list[RequestSpec]:
    """One for each text, with a seed: speculation promises the same tokens only for given seeds."""
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
