"""The real engine around the toy model, and a loop that runs it to the end of a workload."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from turnout.core.engine.admission import Limits
from turnout.core.engine.engine import Engine
from turnout.core.engine.logits_processing import LogitsProcessors
from turnout.core.engine.observers import Observers
from turnout.core.engine.pooling.dispatch import PoolingDispatch
from turnout.core.errors import Overloaded
from turnout.core.interfaces.admission import AdmissionPolicy
from turnout.core.interfaces.compute import PipelinedRunner, Runner
from turnout.core.interfaces.decoding import Decoding
from turnout.core.interfaces.kv import KVCache
from turnout.core.interfaces.scheduling import LengthPredictor, SchedulingPolicy
from turnout.core.scheduling.preemption import Preemption
from turnout.core.scheduling.scheduler import Capacity, Scheduler
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.predictors.max_tokens import MaxTokens
from turnout.testing.toy.decodings import toy_decodings
from turnout.testing.toy.model import EOS, VOCABULARY
from turnout.testing.toy.runner import ToyRunner

__all__ = ["ToyOutcome", "drive", "toy_engine", "toy_request"]


def toy_request(
    name: str, prompt: list[int], strategy: str, max_tokens: int, n: int = 1, priority: int = 0
) -> RequestSpec:
    """A request to one of the toy's strategies, by the strategy's name."""
    params = SamplingParams(n=n, max_tokens=max_tokens, stop=(strategy,))
    return RequestSpec(id=name, prompt=prompt, params=params, seed=0, priority=priority)


def toy_engine(
    policy: SchedulingPolicy,
    kv: KVCache,
    *,
    budget: int = 16,
    slots: int = 6,
    strict: bool = True,
    preemption: Preemption | None = None,
    predictor: LengthPredictor | None = None,
    observers: Observers | None = None,
    processors: LogitsProcessors | None = None,
    decodings: Sequence[Decoding] = (),
    runner: Runner | None = None,
    admission: AdmissionPolicy | None = None,
    pooling: PoolingDispatch | None = None,
    waiting: int = 1000,
    overlaps: bool = False,
    grows_at: int | None = None,
    pipeline: PipelinedRunner | None = None,
) -> Engine:
    """An engine whose clock advances by a second with each reading; `decodings` come before the toy's own.

    grows_at: as the backend of `kv` declares it (`KVBackend.grows_at`); pipeline: takes the runner's place.
    """
    capacity, predictor = Capacity(budget, slots), predictor or MaxTokens()
    scheduler = Scheduler(
        policy, kv, capacity, predictor, preemption=preemption, strict=strict, grows_at=grows_at
    )
    limits = Limits(
        max_model_len=256, vocab_size=VOCABULARY, max_waiting=waiting, eos_token_ids=frozenset({EOS})
    )
    ticks = iter(range(10**9))
    strategies = [*decodings, *toy_decodings()]

    def clock() -> float:
        return float(next(ticks))

    runner = runner or pipeline or ToyRunner(kv)
    parts = (observers, processors, admission, pooling)
    return Engine(scheduler, runner, strategies, limits, clock, *parts, overlaps=overlaps, pipeline=pipeline)


@dataclass
class ToyOutcome:
    tokens: dict[str, dict[int, list[int]]] = field(default_factory=dict)
    """By request and choice."""
    finished: dict[str, dict[int, str]] = field(default_factory=dict)
    """Finish reasons by request and choice, in the order in which requests ended."""
    errors: dict[str, str] = field(default_factory=dict)
    steps: int = 0

    def outputs(self, name: str) -> list[list[int]]:
        return sorted(self.tokens.get(name, {}).values())


def drive(
    engine: Engine,
    arrivals: Iterable[tuple[int, RequestSpec]],
    max_steps: int = 20_000,
    *,
    errors: bool = False,
) -> ToyOutcome:
    """Run until all requests have ended.

    arrivals: (step, request). errors: requests may end with one, or be refused because of overload.
    """
    outcome, todo = ToyOutcome(), sorted(arrivals, key=lambda a: a[0])
    while todo or engine.busy:
        while todo and todo[0][0] <= outcome.steps:
            spec = todo.pop(0)[1]
            try:
                engine.add(spec)
            except Overloaded as refusal:
                assert errors, f"request {spec.id} was refused: {refusal}"
                outcome.errors[spec.id] = str(refusal)
        for delta in engine.step():
            assert errors or not delta.error, f"request {delta.request_id} ended with an error: {delta.error}"
            if delta.error:
                outcome.errors[delta.request_id] = delta.error
                continue
            outcome.tokens.setdefault(delta.request_id, {}).setdefault(delta.index, []).extend(delta.tokens)
            if delta.finish_reason:
                ended = outcome.finished.setdefault(delta.request_id, {})
                assert delta.index not in ended, (
                    f"choice {delta.index} of request {delta.request_id} ended twice"
                )
                ended[delta.index] = delta.finish_reason
        outcome.steps += 1
        assert outcome.steps < max_steps, (
            f"not all requests had ended after {max_steps} steps; expected progress in every step"
        )
    return outcome
