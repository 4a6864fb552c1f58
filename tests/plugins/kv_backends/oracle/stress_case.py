"""Random serving under memory pressure, all of it drawn from one seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import msgspec
from brute_force import VOCABULARY, BruteForce, tiny_spec
from stress_policies import AnyEviction, AnyOrder, AnyPreemption
from stress_strategies import EOS, Answers, answers, request

from turnout.core.interfaces.eviction import EvictionPolicy
from turnout.core.interfaces.kv import KVBackend, PoolSize
from turnout.core.interfaces.scheduling import SchedulingPolicy
from turnout.core.scheduling.preemption import Auto, Preemption, Recompute, Swap, SwapCosts
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.evictions.lru import Lru
from turnout.plugins.kv_backends.contiguous.backend import Contiguous
from turnout.plugins.kv_backends.paged.backend import Paged
from turnout.plugins.kv_backends.storage.dtypes import KVDtype
from turnout.plugins.schedulers.deadline import Deadline
from turnout.plugins.schedulers.fair import Fair
from turnout.plugins.schedulers.fcfs import Fcfs
from turnout.plugins.schedulers.lpm import LongestPrefixMatch
from turnout.plugins.schedulers.mlfq import Mlfq
from turnout.plugins.schedulers.prefill_first import PrefillFirst
from turnout.plugins.schedulers.priority import Priority
from turnout.plugins.schedulers.sarathi import Sarathi
from turnout.plugins.schedulers.srpt import Srpt
from turnout.plugins.schedulers.static import Static

__all__ = ["Ask", "Case", "draw_case", "of_choices_alone", "questions"]

GROUP = 100
"""Cases that ask from the same list of questions, so that each is answered by brute force once."""


def of_choices_alone(seed: int) -> bool:
    """All that is asked can do without knowing its tokens at once: steps overlap as often as they may."""
    return seed // GROUP % 4 == 2


@dataclass(frozen=True)
class Question:
    """A request and what it should give."""

    spec: RequestSpec
    answers: Answers
    after: int | None = None
    """The question whose answer its prompt goes on from."""


@dataclass(frozen=True)
class Ask:
    """A question put to the engine."""

    spec: RequestSpec
    answers: Answers
    step: int
    abort: tuple[int, int | None] | None = None
    """At which step, and which choice, if not all."""


@dataclass(frozen=True)
class Case:
    """What is asked when, and what serves it. Printed in full when it fails."""

    seed: int
    block_size: int | None
    """None: the contiguous backend."""
    pool: PoolSize
    prefix_caching: bool
    stored: KVDtype
    staged: int
    """Positions that the GPU's way of moving takes at a time; 0: the CPU's way."""
    budget: int
    slots: int
    policy: str
    preemption: str
    eviction: str
    pinned: int
    """Prefixes of prompts that are pinned from the start."""
    asks: tuple[Ask, ...]
    overlaps: bool
    """Steps begin before the tokens of those before are known."""
    windowed: bool = False
    """A layer has a window, and forgets what is before."""

    @property
    def strict(self) -> bool:
        """Whether its policy is to be without fault."""
        return self.policy != "any"

    def make_policy(self) -> SchedulingPolicy:
        return _policies(self.seed)[self.policy]

    def make_preemption(self) -> Preemption:
        return _preemptions(self.seed)[self.preemption]

    def make_eviction(self) -> EvictionPolicy:
        return AnyEviction(self.seed) if self.eviction == "any" else Lru()


def _policies(seed: int) -> dict[str, SchedulingPolicy]:
    rng = random.Random(seed)
    return {
        "fcfs": Fcfs(),
        "srpt": Srpt(aging=rng.choice([0.0, 1.0])),
        "mlfq": Mlfq(quantum=rng.randrange(1, 16), levels=3, starve_limit=rng.randrange(1, 50)),
        "priority": Priority(),
        "fair": Fair(),
        "deadline": Deadline(hopeless="last"),
        "lpm": LongestPrefixMatch(max_wait=20.0),
        "sarathi": Sarathi(chunk=rng.randrange(1, 12)),
        "prefill-first": PrefillFirst(),
        "static": Static(size=rng.randrange(1, 5)),
        "any": AnyOrder(seed, drops=rng.random() < 0.3),
    }


def _preemptions(seed: int) -> dict[str, Preemption]:
    costs = SwapCosts(moved_token=1.0, computed_token=random.Random(seed).random(), computed_pair=0.1)
    return {"recompute": Recompute(), "swap": Swap(), "auto": Auto(costs), "any": AnyPreemption(seed)}


# ------------------------------------------------------------------ what is asked


@lru_cache(maxsize=2)
def questions(group: int, reference: BruteForce) -> tuple[Question, ...]:
    """Some that start alike, and some whose prompts are another's prompt, answer and a few words more."""
    rng = random.Random(-1 - group)
    stem = _tokens(rng, 24)
    specs = [
        _question(rng, stem[: rng.choice([0, rng.randrange(25)])] + _tokens(rng, rng.randrange(1, 10)), group)
        for _ in range(16)
    ]
    found = answers(specs, reference)
    first = [Question(spec, answer) for spec, answer in zip(specs, found, strict=True)]
    followed = [rng.randrange(len(first)) for _ in range(8)]
    specs = [_question(rng, _go_on(rng, first[index]), group) for index in followed]
    found = answers(specs, reference)
    return (*first, *map(Question, specs, found, followed))


def _question(rng: random.Random, prompt: list[int], group: int) -> RequestSpec:
    strategy = rng.choice(["choices", "guesses", "guesses", "leaps", "beam"])
    if of_choices_alone(group * GROUP):
        strategy = "choices"
    most = rng.randrange(1, 16)
    n = rng.choice([1, 2, 3, 4]) if strategy != "beam" else rng.randrange(2, 5)
    return request("", strategy, prompt, most, n=n, part=rng.choice([0, rng.randrange(most)]))


def _go_on(rng: random.Random, earlier: Question) -> list[int]:
    said = rng.choice(earlier.answers)
    return [*earlier.spec.prompt, *said[: rng.randrange(len(said) + 1)], *_tokens(rng, rng.randrange(1, 6))]


def _tokens(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(EOS + 1, VOCABULARY) for _ in range(count)]


# ------------------------------------------------------------------ a case


def draw_case(seed: int, reference: BruteForce) -> Case:
    """Memory for the most demanding request and hardly more, so that they fight for it."""
    rng = random.Random(seed)
    asks = tuple(_asks(rng, questions(seed // GROUP, reference)))
    block_size = None if rng.random() < 0.25 else rng.choice([1, 2, 3, 4, 5, 8, 16])
    most = max(ask.spec.params.n for ask in asks)
    case = Case(
        seed=seed,
        block_size=block_size,
        pool=_pool(rng, asks, block_size),
        windowed=reference.windowed,
        prefix_caching=rng.random() < 0.75,
        stored=reference.stored,
        staged=rng.choice([0, rng.randrange(1, 40)]),
        budget=max(most, rng.choice([rng.randrange(1, 12), rng.randrange(12, 40)])),
        slots=most + rng.randrange(6),
        policy=rng.choice(["any", rng.choice(list(_policies(0)))]),
        preemption=rng.choice(list(_preemptions(0))),
        eviction=rng.choice(["lru", "any"]),
        pinned=rng.choice([0, 0, 1, 3]),
        asks=asks,
        overlaps=rng.random() < 0.5,
    )
    return replace(case, pool=_scarce(rng, case)) if case.windowed else case


def _scarce(rng: random.Random, case: Case) -> PoolSize:
    """Memory for the most demanding request where windows forget, and hardly more."""
    backend: KVBackend = Contiguous() if case.block_size is None else Paged(case.block_size)
    backend = backend.for_model(tiny_spec(windowed=True))
    spare = rng.choice([0, 1, rng.randrange(12)]) * backend.unit
    needs = [ask.spec.params.n * backend.positions(limit_of(ask.spec), case.budget) for ask in case.asks]
    return replace(case.pool, tokens=max(needs) + spare + backend.unit, step=case.budget)


def limit_of(spec: RequestSpec) -> int:
    return len(spec.prompt) + (spec.params.max_tokens or 0)


def _asks(rng: random.Random, known: tuple[Question, ...]) -> Iterator[Ask]:
    steps: dict[int, int] = {}
    for index in (rng.randrange(len(known)) for _ in range(rng.randrange(2, 9))):
        question = known[index]
        if question.after is not None and question.after not in steps:
            steps[question.after] = rng.randrange(8)
            yield _ask(rng, known[question.after], steps[question.after])
        steps[index] = (
            rng.randrange(8) if question.after is None else steps[question.after] + rng.randrange(25)
        )
        yield _ask(rng, question, steps[index])


def _ask(rng: random.Random, question: Question, step: int) -> Ask:
    name = f"{'-'.join(question.spec.params.stop)}-{rng.getrandbits(24):06x}"
    spec = msgspec.structs.replace(
        question.spec,
        id=name,
        priority=rng.randrange(3),
        client=rng.choice("ab"),
        deadline=rng.choice([None, 20.0, 200.0]),
        cache_salt=rng.choice(["", "", "a", "b"]),
        params=_scored(question.spec.params) if rng.random() < 0.2 else question.spec.params,
    )
    abort = None
    if rng.random() < 0.12:
        abort = step + rng.randrange(20), rng.choice([None, rng.randrange(spec.params.n)])
    return Ask(spec, question.answers, step, abort)


def _scored(params: SamplingParams) -> SamplingParams:
    """With the log-probabilities of the prompt, for which cached blocks are computed again."""
    return msgspec.structs.replace(params, prompt_logprobs=0)


def _pool(rng: random.Random, asks: tuple[Ask, ...], block_size: int | None) -> PoolSize:
    size = block_size or 1
    needs = [ask.spec.params.n * -(-limit_of(ask.spec) // size) * size for ask in asks]
    spare = rng.choice([0, 0, 1, 2, rng.randrange(12)])
    swap = rng.choice([0, rng.randrange(1, 2 * max(needs)), rng.randrange(1, 2 * max(needs)), 10_000])
    return PoolSize(tokens=max(needs) + spare * size, swap=swap)
