"""A language model, a device and a reference small enough to check the mechanism by brute force.

The toy model's logits are a function of the last tokens that the KV memory says are there, so a wrong
table, a missed copy or a stale block changes the output.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache

from turnout.core.admission import Limits
from turnout.core.engine import Engine
from turnout.core.interfaces import Decoding, KVCache, PoolSize
from turnout.core.observers import Observers
from turnout.core.plan import Logits, Plan, Way
from turnout.core.policy import LengthPredictor, SchedulingPolicy
from turnout.core.preemption import Preemption
from turnout.core.request import Continuation, Request, RequestSpec, SamplingParams
from turnout.core.request import Sequence as TokenSequence
from turnout.core.scheduler import Capacity, Scheduler
from turnout.plugins.evictions.lru import Lru
from turnout.plugins.kv_backends.contiguous_cache import ContiguousCache
from turnout.plugins.kv_backends.paged_cache import PagedCache
from turnout.plugins.predictors.max_tokens import MaxTokens

VOCABULARY = 7
EOS = 0
CONTEXT = 5


def toy_logits(context: Sequence[int]) -> list[float]:
    seed = len(context) % 3
    for token in context[-CONTEXT:]:
        seed = seed * 31 + token + 1
    return _row(seed)


@cache
def _row(seed: int) -> list[float]:
    rng = random.Random(seed)
    return [rng.uniform(-2, 2) - (1.0 if token == EOS else 0.0) for token in range(VOCABULARY)]


def argmax(row: Sequence[float]) -> int:
    return max(range(len(row)), key=row.__getitem__)


def log_softmax(row: Sequence[float]) -> list[float]:
    norm = math.log(sum(math.exp(x) for x in row))
    return [x - norm for x in row]


def toy_kv(blocks: int, block_size: int, *, parking: int = 0, **options) -> PagedCache:
    """A pool of so many blocks, and `parking` blocks of host memory."""
    size = PoolSize(blocks * block_size, parking * block_size)
    return PagedCache(size, block_size, Lru(), **options)


def slots_of(kv: KVCache, sequence: TokenSequence, length: int) -> list[int]:
    """Where in the pool the first `length` positions of a sequence lie."""
    if isinstance(kv, ContiguousCache):
        start = kv.slabs[sequence.id].start
        return list(range(start, start + length))
    assert isinstance(kv, PagedCache)
    table, size = kv.tables[sequence.id], kv.block_size
    return [table[p // size] * size + p % size for p in range(length)]


@dataclass
class ToyRunner:
    """A device: the pool's slots hold tokens."""

    kv: KVCache
    pool: dict[int, int] = field(default_factory=dict)
    host: dict[int, int] = field(default_factory=dict)

    def run(self, plan: Plan) -> Logits:
        for move in plan.moves:
            self._move(*move)
        for chunk in plan.chunks:
            slots = slots_of(self.kv, chunk.sequence, chunk.end)[chunk.start :]
            self.pool.update(zip(slots, chunk.tokens, strict=True))
        values, rows = [], {}
        for chunk in plan.chunks:
            if not chunk.rows:
                continue
            read = [self.pool[slot] for slot in slots_of(self.kv, chunk.sequence, chunk.end)]
            rows[chunk.sequence] = range(len(values), len(values) + chunk.rows)
            values += [toy_logits(read[: chunk.end - chunk.rows + 1 + row]) for row in range(chunk.rows)]
        return Logits(values, rows)  # type: ignore[arg-type]  # lists stand in for a tensor

    def _move(self, source: int, target: int, length: int, way: Way) -> None:
        read = self.host if way == "restore" else self.pool
        written = self.host if way == "park" else self.pool
        copied = [read[source + offset] for offset in range(length)]
        written.update(zip(range(target, target + length), copied, strict=True))


# ------------------------------------------------------------------ strategies


class ToyDecoding(Decoding):
    """Serves the requests whose ``user`` names it; decides one request at a time."""

    name = ""

    def accepts(self, params: SamplingParams) -> bool:
        return params.stop == (self.name,)

    def decide(self, requests: Sequence[Request], logits: Logits) -> Iterable[Continuation]:
        for request in requests:
            yield from self.choose(
                request, {s: [logits.values[i] for i in logits.rows[s]] for s in request.live}
            )

    def choose(self, request: Request, rows: dict[TokenSequence, list]) -> Iterable[Continuation]:
        raise NotImplementedError


class Greedy(ToyDecoding):
    name = "greedy"

    def choose(self, request, rows):
        return [Continuation(s, [argmax(r[-1])]) for s, r in rows.items()]


class Lookup(ToyDecoding):
    """Prompt-lookup speculation, verified greedily."""

    name = "lookup"

    def draft(self, sequences):
        for sequence in sequences:
            tokens = sequence.tokens
            for i in range(len(tokens) - 2, -1, -1):
                if tokens[i] == tokens[-1]:
                    yield sequence, tokens[i + 1 : i + 4]
                    break

    def choose(self, request, rows):
        ((sequence, logits),) = rows.items()
        accepted = []
        for guess, row in zip([*sequence.draft, None], logits, strict=True):
            accepted.append(argmax(row))
            if accepted[-1] != guess:
                break
        return [Continuation(sequence, accepted)]


class Parallel(ToyDecoding):
    """n choices: the i-th starts with the i-th likeliest token and is greedy from there."""

    name = "parallel"

    def choose(self, request, rows):
        if request.births == 1 and len(rows) == 1 and request.params.n > 1:
            ((sequence, logits),) = rows.items()
            best = sorted(range(VOCABULARY), key=lambda t: -logits[-1][t])
            return [Continuation(sequence, [token]) for token in best[: request.params.n]]
        return [Continuation(s, [argmax(r[-1])]) for s, r in rows.items()]


class Beam(ToyDecoding):
    """Width `n`; forks, drops and reorders sequences at every step."""

    name = "beam"
    streams = False

    def choose(self, request, rows):
        pool = [
            (s.logprob + lp, s, token, lp)
            for s, r in rows.items()
            for token, lp in enumerate(log_softmax(r[-1]))
        ]
        pool.sort(key=lambda c: (-c[0], c[1].tokens, c[2]))
        return [
            Continuation(s, [token], lp)
            for _, s, token, lp in pool[: len(request.live) if request.births > 1 else request.params.n]
        ]


def toy_request(
    name: str, prompt: list[int], strategy: str, max_tokens: int, n: int = 1, priority: int = 0
) -> RequestSpec:
    params = SamplingParams(n=n, max_tokens=max_tokens, stop=(strategy,))
    return RequestSpec(id=name, prompt=prompt, params=params, seed=0, priority=priority)


# ------------------------------------------------------------------ brute force


def expected(spec: RequestSpec) -> list[list[int]]:
    """The outputs of a request by recomputing everything, sorted."""
    (strategy,) = spec.params.stop
    n, limit = spec.params.n, spec.params.max_tokens
    if strategy == "beam":
        return sorted(_beam(spec.prompt, n, limit))
    best = sorted(range(VOCABULARY), key=lambda t: -toy_logits(spec.prompt)[t])
    return sorted(_greedy(spec.prompt, [token], limit) for token in best[:n])


def _greedy(prompt: list[int], output: list[int], limit: int) -> list[int]:
    while len(output) < limit and output[-1] != EOS:
        output = [*output, argmax(toy_logits(prompt + output))]
    return output


def _beam(prompt: list[int], width: int, limit: int) -> list[list[int]]:
    live, done = [(0.0, list[int]())], []
    for step in range(limit):
        pool = [
            (score + lp, tokens, token)
            for score, tokens in live
            for token, lp in enumerate(log_softmax(toy_logits(prompt + tokens)))
        ]
        pool.sort(key=lambda c: (-c[0], c[1], c[2]))
        kept = [(score, [*tokens, token]) for score, tokens, token in pool[: len(live) if step else width]]
        done += [tokens for _, tokens in kept if tokens[-1] == EOS or len(tokens) == limit]
        live = [(score, tokens) for score, tokens in kept if tokens[-1] != EOS and len(tokens) < limit]
        if not live:
            break
    return done


# ------------------------------------------------------------------ driving


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
    decodings: Sequence[Decoding] = (),
) -> Engine:
    """`decodings` are asked before the toy's own."""
    scheduler = Scheduler(
        policy,
        kv,
        Capacity(budget, slots),
        predictor or MaxTokens(),
        preemption=preemption,
        strict=strict,
    )
    limits = Limits(
        max_model_len=256, vocab_size=VOCABULARY, max_waiting=1000, eos_token_ids=frozenset({EOS})
    )
    steps = iter(range(10**9))
    strategies = [*decodings, Greedy(), Lookup(), Parallel(), Beam()]
    return Engine(scheduler, ToyRunner(kv), strategies, limits, lambda: float(next(steps)), observers)


@dataclass
class Outcome:
    tokens: dict[str, dict[int, list[int]]] = field(default_factory=dict)
    finished: dict[str, dict[int, str]] = field(default_factory=dict)
    steps: int = 0

    def outputs(self, name: str) -> list[list[int]]:
        return sorted(self.tokens[name].values())


def drive(engine: Engine, arrivals: Iterable[tuple[int, RequestSpec]], max_steps: int = 20_000) -> Outcome:
    """Run until all is served; `arrivals` are (step, request)."""
    outcome, todo = Outcome(), sorted(arrivals, key=lambda a: a[0])
    while todo or engine.busy:
        while todo and todo[0][0] <= outcome.steps:
            engine.add(todo.pop(0)[1])
        for delta in engine.step():
            assert not delta.error, delta.error
            outcome.tokens.setdefault(delta.request_id, {}).setdefault(delta.index, []).extend(delta.tokens)
            if delta.finish_reason:
                outcome.finished.setdefault(delta.request_id, {})[delta.index] = delta.finish_reason
        outcome.steps += 1
        assert outcome.steps < max_steps, "livelock"
    return outcome
