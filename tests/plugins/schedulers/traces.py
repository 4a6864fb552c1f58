"""Requests over time on a virtual clock, and what the real engine made of them.

A step takes one second. `serve` runs the engine on a toy model and keeps a journal: who was admitted,
preempted and given tokens, in the order in which it happened.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from toy import EOS, VOCABULARY, ToyGreedy, ToyRunner, toy_kv

from turnout.core.engine.engine import Engine, Limits
from turnout.core.interfaces.kv import KVCache
from turnout.core.interfaces.scheduling import LengthPredictor, SchedulingPolicy
from turnout.core.scheduling.scheduler import Capacity, Scheduler
from turnout.core.types.request import Request, RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.predictors.max_tokens import MaxTokens


class Event(NamedTuple):
    time: float
    kind: str
    """"arrive", "admit", "preempt" or "tokens"."""
    id: str
    tokens: int = 0


def job(
    name: str, arrival: float, prompt: int | list[int] = 3, tokens: int = 4, *, exact: bool = False, **fields
) -> RequestSpec:
    """A request for `tokens` tokens at most, or exactly so many."""
    prompt = [1 + i % (VOCABULARY - 1) for i in range(prompt)] if isinstance(prompt, int) else prompt
    params = SamplingParams(max_tokens=tokens, ignore_eos=exact, stop=("greedy",))
    return RequestSpec(id=name, prompt=prompt, params=params, seed=0, arrival=arrival, **fields)


def random_trace(rng: random.Random, most: int = 7) -> list[RequestSpec]:
    """In order of arrival; half of the traces have ties."""
    ties = rng.random() < 0.5
    span = rng.choice([0, 4, 12])
    arrivals = sorted(
        rng.randint(0, span) if ties else rng.uniform(0, span) for _ in range(rng.randint(2, most))
    )
    return [_random_job(rng, f"r{number}", float(arrival)) for number, arrival in enumerate(arrivals)]


def _random_job(rng: random.Random, name: str, arrival: float) -> RequestSpec:
    prompt = [rng.randrange(1, VOCABULARY) for _ in range(rng.randint(1, rng.choice([3, 12])))]
    return job(
        name,
        arrival,
        prompt,
        rng.randint(1, rng.choice([3, 12])),
        priority=rng.randrange(3),
        client=rng.choice("abc"),
        deadline=rng.choice([None, rng.uniform(2, 20)]),
        ttft_deadline=rng.choice([None, rng.uniform(1, 10)]),
    )


@dataclass
class Served:
    """What a trace came to."""

    specs: dict[str, RequestSpec] = field(default_factory=dict)
    journal: list[Event] = field(default_factory=list)
    outputs: dict[str, list[int]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    finished: dict[str, float] = field(default_factory=dict)
    steps: int = 0

    def times(self, kind: str) -> list[tuple[float, str]]:
        """When, and whom, of one kind of event."""
        return [(event.time, event.id) for event in self.journal if event.kind == kind]

    @cached_property
    def first_tokens(self) -> dict[str, float]:
        return {name: time for time, name in reversed(self.times("tokens"))}

    def ttft(self, name: str) -> float:
        """Seconds from arrival to the first token."""
        return self.first_tokens[name] - self.specs[name].arrival


@dataclass
class Machine:
    """What a trace runs on. By default memory and budget are ample, so that only slots are fought for."""

    kv: KVCache = field(default_factory=lambda: toy_kv(256, 8, prefix_caching=False))
    slots: int = 2
    budget: int = 10_000
    predictor: LengthPredictor = field(default_factory=MaxTokens)

    def engine(self, policy: SchedulingPolicy, clock: Callable[[], float]) -> Engine:
        capacity = Capacity(self.budget, self.slots)
        scheduler = Scheduler(policy, self.kv, capacity, self.predictor, strict=True)
        limits = Limits(
            max_model_len=256, vocab_size=VOCABULARY, max_waiting=100_000, eos_token_ids=frozenset({EOS})
        )
        return Engine(scheduler, ToyRunner(self.kv), [ToyGreedy()], limits, clock)


def serve(
    policy: SchedulingPolicy,
    trace: Iterable[RequestSpec],
    machine: Machine | None = None,
    *,
    until: float = 5_000,
    watch: Callable[[Engine, Served], None] | None = None,
) -> Served:
    """Run a trace, in order of arrival, to its end or for so many seconds; `watch` after each step."""
    served = Served()
    engine = (machine or Machine()).engine(policy, lambda: float(served.steps))
    _keep_journal(engine, served)
    arrivals = iter(trace)
    coming = next(arrivals, None)
    while (coming is not None or engine.busy) and served.steps < until:
        while coming is not None and coming.arrival <= served.steps:
            served.specs[coming.id] = coming
            engine.add(coming)
            coming = next(arrivals, None)
        _step(engine, served)
        if watch is not None:
            watch(engine, served)
        served.steps += 1
    assert until < 5_000 or not engine.busy, "livelock"
    return served


def _step(engine: Engine, served: Served) -> None:
    for delta in engine.step():
        if delta.error:
            served.errors[delta.request_id] = delta.error
            continue
        served.outputs.setdefault(delta.request_id, []).extend(delta.tokens)
        if delta.finish_reason:
            served.finished[delta.request_id] = float(served.steps)


def _keep_journal(engine: Engine, served: Served) -> None:
    """Listen where the mechanism moves requests between its queues."""
    queues, scheduler = engine.scheduler.queues, engine.scheduler

    def heard(owner: object, name: str, kind: str) -> None:
        act = getattr(owner, name)

        def acting(request: Request, *details: object) -> None:
            tokens = details[0] if details else 0
            served.journal.append(Event(float(served.steps), kind, request.id, tokens))
            act(request, *details)

        setattr(owner, name, acting)

    heard(queues, "arrive", "arrive")
    heard(queues, "admit", "admit")
    heard(queues, "preempt", "preempt")
    heard(scheduler, "observe", "tokens")
