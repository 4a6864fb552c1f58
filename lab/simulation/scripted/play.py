"""Outputs follow a script, and time is virtual.

Scheduler, KV bookkeeping, policies and the step loop are those that serve. What is left out is the
arithmetic: the runner computes nothing and says how long it would have taken, and tokens are a function of
(request seed, choice, position). So a thousand requests are served in seconds, the same each time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count
from typing import NamedTuple

from turnout.core.engine.admission import Limits
from turnout.core.engine.engine import Engine
from turnout.core.interfaces.decoding import Decoding
from turnout.core.interfaces.kv import KVCache
from turnout.core.interfaces.scheduling import LengthPredictor, SchedulingPolicy
from turnout.core.scheduling.scheduler import Capacity, Scheduler
from turnout.core.types.decision import Continuation
from turnout.core.types.plan import Logits, Plan
from turnout.core.types.request import Request, RequestSpec
from turnout.core.types.request import Sequence as TokenSequence
from turnout.core.types.sampling_params import SamplingParams
from turnout.lab.simulation.virtual_clock import VirtualClock

__all__ = ["Arrival", "Pace", "Play", "scripted_output", "scripted_request"]

VOCABULARY = 50_000
EOS = 0


def scripted_output(seed: int, tokens: int, choice: int = 0) -> list[int]:
    """What the script says for a request, up to its end of sequence."""
    return [_token(seed, choice, position) for position in range(tokens - 1)] + [EOS]


def _token(seed: int, choice: int, position: int) -> int:
    """Anything but the end of sequence, and hardly ever the same twice."""
    return 1 + (seed * 1_000_003 + choice * 7_919 + position * 104_729) % (VOCABULARY - 1)


def scripted_request(
    id: str,
    prompt: list[int],
    tokens: int,
    *,
    seed: int,
    bound: int | None = None,
    n: int = 1,
    salt: str = "",
) -> RequestSpec:
    """A request that ends by itself after `tokens`, though its client allowed `bound` of them.

    The script's length travels as ``min_tokens``: no stop before it, and then at once.
    """
    params = SamplingParams(n=n, min_tokens=tokens, max_tokens=bound or tokens, temperature=1.0)
    return RequestSpec(id=id, prompt=prompt, params=params, seed=seed, cache_salt=salt)


@dataclass(frozen=True)
class Pace:
    """What a step takes, in seconds."""

    step: float = 0.02
    token: float = 0.0001
    """Computing a token that has no context."""
    context: int = 8192
    """Tokens of context at which attending to them takes as long as all else."""

    def computing(self, plan: Plan) -> float:
        """What the step's tokens take, beside what every step does."""
        pairs = sum((chunk.start + chunk.end) / 2 * len(chunk.tokens) for chunk in plan.chunks)
        return self.token * (plan.tokens + pairs / self.context)


class _Runner:
    """Computes nothing, and takes its time."""

    def __init__(self, clock: VirtualClock, pace: Pace) -> None:
        self._clock = clock
        self._pace = pace
        self.computing = 0.0
        """Seconds, of all steps so far."""

    def run(self, plan: Plan) -> Logits:
        computing = self._pace.computing(plan)
        self.computing += computing
        self._clock.now += self._pace.step + computing
        # No strategy here looks at a value.
        return Logits([], {chunk.sequence: range(chunk.rows) for chunk in plan.chunks if chunk.rows})  # type: ignore[arg-type]


class _Sampling(Decoding):
    """Choices that go their own ways from the first token on."""

    def accepts(self, params: SamplingParams) -> bool:
        return params.temperature > 0

    def decide(self, requests: Sequence[Request], logits: Logits) -> Iterator[Continuation]:
        for request in requests:
            if request.forks == 0 and request.params.n > 1:
                (parent,) = request.live
                yield from (_continued(parent, choice) for choice in range(request.params.n))
            else:
                yield from (_continued(sequence, sequence.index) for sequence in request.live)


def _continued(parent: TokenSequence, choice: int) -> Continuation:
    request, position = parent.request, len(parent.output)
    ends = position + 1 >= request.params.min_tokens
    return Continuation(parent, [EOS if ends else _token(request.spec.seed, choice, position)])


class _Beam(Decoding):
    """Beam search (temperature 0) over scores drawn at random: `n` beams, each with `n` candidates a step."""

    streams = False

    def accepts(self, params: SamplingParams) -> bool:
        return params.temperature == 0

    def decide(self, requests: Sequence[Request], logits: Logits) -> Iterator[Continuation]:
        for request in requests:
            candidates = [candidate for beam in request.live for candidate in _candidates(beam)]
            candidates.sort(key=lambda c: (-c.parent.logprob - c.logprob, c.tokens))
            yield from candidates[: request.params.n]


def _candidates(beam: TokenSequence) -> Iterator[Continuation]:
    request, position = beam.request, len(beam.output)
    ends = position + 1 >= request.params.min_tokens
    rng = random.Random(f"{request.spec.seed} {beam.tokens[-1]} {position} {beam.index}")
    for rank in range(request.params.n):
        token = EOS if ends else 1 + (rng.randrange(VOCABULARY) + rank) % (VOCABULARY - 1)
        yield Continuation(beam, [token], -rng.expovariate(1.0))


class Arrival(NamedTuple):
    at: float
    """Seconds on the virtual clock."""
    spec: RequestSpec


Then = Callable[[RequestSpec, float], Iterable[Arrival]]
"""What a finished request leads to, such as the next turn of its conversation."""


class Play:
    """An engine, its clock, and what is still to come."""

    def __init__(
        self,
        kv: KVCache,
        policy: SchedulingPolicy,
        predictor: LengthPredictor,
        capacity: Capacity,
        *,
        max_model_len: int,
        pace: Pace | None = None,
    ) -> None:
        self.kv = kv
        self.clock = VirtualClock()
        scheduler = Scheduler(policy, kv, capacity, predictor, strict=True)
        limits = Limits(
            max_model_len=max_model_len,
            vocab_size=VOCABULARY,
            max_waiting=2**31,
            eos_token_ids=frozenset({EOS}),
        )
        self._runner = _Runner(self.clock, pace or Pace())
        self.engine = Engine(scheduler, self._runner, [_Sampling(), _Beam()], limits, self.clock)
        self._open: dict[str, tuple[RequestSpec, int]] = {}
        """By id, with the number of choices that have not ended."""
        self._order = count()
        self._todo: list[tuple[float, int, RequestSpec]] = []

    @property
    def computing(self) -> float:
        """Seconds that computing the tokens took so far, beside what every step takes."""
        return self._runner.computing

    def steps(self, arrivals: Iterable[Arrival], then: Then | None = None) -> Iterator[Engine]:
        """Serve it all; yields the engine after each step."""
        self._todo = [self._entry(arrival) for arrival in arrivals]
        heapify(self._todo)
        while self._todo or self.engine.busy:
            if not self.engine.busy:
                self.clock.now = max(self.clock.now, self._todo[0][0])
            self._arrive()
            for finished in self._step():
                for arrival in then(finished, self.clock.now) if then else ():
                    heappush(self._todo, self._entry(arrival))
            yield self.engine

    def _entry(self, arrival: Arrival) -> tuple[float, int, RequestSpec]:
        return arrival.at, next(self._order), arrival.spec

    def _arrive(self) -> None:
        while self._todo and self._todo[0][0] <= self.clock.now:
            _, _, spec = heappop(self._todo)
            self._open[spec.id] = (spec, spec.params.n)
            self.engine.add(spec)

    def _step(self) -> list[RequestSpec]:
        """One step; returns the requests that ended with it."""
        ended = []
        for delta in self.engine.step():
            if delta.error:
                raise RuntimeError(delta.error)
            if delta.finish_reason:
                spec, left = self._open[delta.request_id]
                self._open[delta.request_id] = (spec, left - 1)
                ended += [spec] if left == 1 else []
        return ended
