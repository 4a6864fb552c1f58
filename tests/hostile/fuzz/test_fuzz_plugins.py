"""Plugins that raise anything and answer anything, at any of their calls: each request of others gets its
tokens, each of their own ends, and all memory is free afterwards.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from fuzzing import Fuzz
from hypothesis import strategies as st
from toy import EOS, ToyDecoding, ToyRunner, drive, toy_engine, toy_kv, toy_request

from turnout.core.engine.logits_processing import LogitsProcessors
from turnout.core.engine.observers import Observers
from turnout.core.errors import RequestError
from turnout.core.interfaces.eviction import CachedBlock
from turnout.core.interfaces.kv import PoolSize
from turnout.core.interfaces.logits_processor import LogitsProcessor, Row
from turnout.core.interfaces.observers import WatchingHook
from turnout.core.interfaces.scheduling import Drop, LengthPredictor, SchedulingPolicy, Share
from turnout.core.scheduling.guarded_eviction import GuardedEviction
from turnout.core.types.decision import Choice, Completion, Continuation
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.evictions.lru import Lru
from turnout.plugins.kv_backends.paged.host.cache import PagedCache
from turnout.plugins.schedulers.fcfs import Fcfs
from turnout.testing.checks.brute_force import assert_expected_tokens
from turnout.testing.checks.memory_leaks import assert_all_memory_is_free
from turnout.testing.toy.runner import as_tensor

ERRORS = [
    RuntimeError,
    KeyError,
    MemoryError,
    RecursionError,
    StopIteration,
    UnicodeError,
    AssertionError,
    SystemExit,
]
HUGE = 10**400


class Unprintable(Exception):
    """An error whose message fails."""

    def __str__(self) -> str:
        raise ValueError("no")


class Odd:
    """Answers every question about itself in a wrong way."""

    def __repr__(self) -> str:
        raise RuntimeError("no")

    def __hash__(self) -> int:
        raise TypeError("no")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")

    def __iter__(self) -> Iterator[object]:
        yield 1
        raise RuntimeError("no")


Answer = Callable[..., Any]


def raising(error: type[BaseException]) -> Answer:
    def raises(*_: Any) -> Any:
        raise error

    return raises


JUNK: list[Answer] = [
    *(raising(error) for error in [*ERRORS, Unprintable]),
    *(
        lambda *_, value=value: value
        for value in [
            None,
            0,
            -1,
            HUGE,
            True,
            float("nan"),
            float("inf"),
            "",
            "x",
            [],
            [None],
            {},
            {1: 2},
            (1, 2),
        ]
    ),
    lambda *_: Odd(),
    lambda *_: [Odd()],
    lambda *_: (1 / 0 for _ in "a"),
]
"""What any method could do."""


class Liar:
    """Answers its calls by `lies`, one after the other; None: honestly."""

    lies: list[Answer | None]

    def __init__(self, lies: list[Answer | None]) -> None:
        self.lies = lies
        self._calls = itertools.count()

    def answer(self, honest: Answer, *asked: Any) -> Any:
        lie = self.lies[next(self._calls) % len(self.lies)]
        return (lie or honest)(*asked)


def lies(*particular: Answer) -> st.SearchStrategy[list[Answer | None]]:
    """Some calls in a row; half of them honest, so that requests go on."""
    lie = (
        st.one_of(st.sampled_from(JUNK), st.sampled_from(particular)) if particular else st.sampled_from(JUNK)
    )
    return st.lists(st.one_of(st.none(), lie), min_size=1, max_size=8)


# ------------------------------------------------------------------ plugins that serve everyone


class LyingPolicy(Liar, Fcfs):
    def order(self, view: Any) -> Any:
        return self.answer(super().order, view)

    def victim(self, request: Any, running: Any) -> Any:
        return self.answer(super().victim, request, running)

    def observe(self, request: Any, tokens: int, now: float) -> None:
        self.answer(super().observe, request, tokens, now)


ORDERS: list[Answer] = [
    lambda view, *_: view.waiting,
    lambda view, *_: [*view.running, *view.waiting] * 3,
    lambda view, *_: reversed([*view.running, *view.waiting]),
    lambda view, *_: itertools.repeat((*view.running, *view.waiting)[0], 10_000),
    lambda view, *_: [Share(request, 0) for request in view.running],
    *(
        lambda view, *_, limit=limit: [Share(request, limit) for request in (*view.running, *view.waiting)]
        for limit in (-1, HUGE, "x", 0.5, None)
    ),
    lambda view, *_: [Drop("x"), Drop(None), *view.running],
    lambda *asked: asked[-1],
]
"""Also asked for a victim: then of whom it may take."""


class LyingPredictor(Liar, LengthPredictor):
    def predict(self, request: Any) -> float:
        number: float = self.answer(lambda *_: 4.0, request)
        return number

    def observe(self, request: Any) -> None:
        self.answer(lambda *_: None, request)


class LyingEviction(Liar, Lru):
    def __init__(self, lies: list[Answer | None]) -> None:
        Lru.__init__(self)
        Liar.__init__(self, lies)

    def add(self, block: CachedBlock) -> None:
        self.answer(super().add, block)

    def remove(self, block: int) -> None:
        self.answer(super().remove, block)

    def pop(self) -> int:
        block: int = self.answer(super().pop)
        return block


def lying_observer(told: list[Answer | None]) -> WatchingHook:
    liar = Liar(told)
    return WatchingHook("liar", lambda **told: liar.answer(lambda _: None, told))


HONEST = [toy_request(f"r{i}", [1 + i % 5, 2, 3, 4, 1 + i % 3], "greedy", 9) for i in range(8)]


def assert_all_are_served(
    policy: SchedulingPolicy | None = None, kv: PagedCache | None = None, **parts: Any
) -> None:
    kv = kv or toy_kv(8, 4)
    engine = toy_engine(policy or Fcfs(), kv, budget=8, slots=4, strict=False, **parts)
    outcome = drive(engine, [(number, spec) for number, spec in enumerate(HONEST)], max_steps=3000)
    for spec in HONEST:
        assert_expected_tokens(spec, outcome)
    assert_all_memory_is_free(kv)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1)


def test_a_scheduling_policy(fuzz: Fuzz) -> None:
    fuzz(lies(*ORDERS), lambda told: assert_all_are_served(LyingPolicy(told)), 40)


def test_a_length_predictor(fuzz: Fuzz) -> None:
    fuzz(lies(), lambda told: assert_all_are_served(predictor=LyingPredictor(told)), 20)


def test_an_observer(fuzz: Fuzz) -> None:
    fuzz(lies(), lambda told: assert_all_are_served(observers=Observers(*[[lying_observer(told)]] * 5)), 20)


def test_an_eviction_policy(fuzz: Fuzz) -> None:
    def check(told: list[Answer | None]) -> None:
        assert_all_are_served(
            kv=PagedCache(PoolSize(8 * 4, 0), 4, GuardedEviction(LyingEviction(told), strict=False))
        )

    fuzz(lies(lambda *_: 7, lambda *_: 8, lambda *_: 10**6), check, 40)


# ------------------------------------------------------------------ plugins that serve who asks for them


class LyingDecoding(Liar, ToyDecoding):
    name = "liar"

    def accepts(self, params: SamplingParams) -> bool:
        return super().accepts(params)

    def width(self, params: SamplingParams) -> int:
        width: int = self.answer(lambda _: 1, params)
        return width

    def decide(self, requests: Any, logits: Any) -> Any:
        return self.answer(super().decide, requests, logits)

    def choose(self, request: Any, rows: Any) -> Any:
        return [Continuation(sequence, [1]) for sequence in rows]

    def draft(self, sequences: Any) -> Any:
        return self.answer(lambda _: [], sequences)

    def forget(self, sequences: Any) -> None:
        self.answer(lambda _: None, sequences)


def deciding(*tokens: Any, times: int = 1) -> Answer:
    """Continues each live sequence with these tokens."""

    def decided(requests: Any, *_: Any) -> Any:
        return [Continuation(s, list(tokens)) for request in requests for s in request.live] * times

    return decided


DECISIONS: list[Answer] = [
    deciding(),
    deciding(EOS),
    deciding(-1),
    deciding(10**6),
    deciding(HUGE),
    deciding(1.0),
    deciding(True),
    deciding("1"),
    deciding(*[1] * 500),
    deciding(1, times=2),
    deciding(1, times=200),
    lambda requests, *_: [Completion(request, []) for request in requests],
    lambda requests, *_: [Completion(request, [Choice([1] * 900, "x")]) for request in requests],
    lambda requests, *_: [Continuation(request, [1]) for request in requests],
    lambda requests, *_: [Continuation(s, [1], float("nan"), [None]) for r in requests for s in r.live],
    lambda requests, *_: [Continuation(s, [1], "x", Odd(), Odd()) for r in requests for s in r.live],
    lambda sequences, *_: [(s, [1] * 300) for s in sequences],
    lambda sequences, *_: [(s, ["x"]) for s in sequences],
]


class LyingProcessor(Liar, LogitsProcessor):
    extra_args = ("lie",)

    def wants(self, params: SamplingParams) -> bool:
        self.answer(lambda _: None, params)  # may raise; a wrong answer would make others its own
        return "lie" in params.extra_args

    def check(self, request: Any) -> None:
        self.answer(lambda _: None, request)

    def prepare(self, spec: RequestSpec) -> Any:
        return self.answer(lambda _: None, spec)

    def apply(self, logits: Any, rows: Sequence[Row]) -> None:
        self.answer(lambda *_: None, logits, rows)


def filling(value: float) -> Answer:
    """Fills what it is given to change; asked anything else, it fails."""

    def fill(logits: Any, *_: Any) -> None:
        logits.fill_(value)

    return fill


ADJUSTMENTS = [
    *(filling(value) for value in (float("nan"), float("inf"), float("-inf"), 1e38)),
    lambda *_: Odd,
]


def assert_others_are_served(own: RequestSpec, **parts: Any) -> None:
    """Three requests want the plugin, and may end in any way; the others do not."""
    kv = toy_kv(16, 4)
    runner = ToyRunner(kv, values=as_tensor) if "processors" in parts else None
    engine = toy_engine(Fcfs(), kv, budget=12, slots=6, strict=False, runner=runner, **parts)
    for number in range(3):
        try:
            engine.add(RequestSpec(id=f"own{number}", prompt=own.prompt, params=own.params, seed=0))
        except RequestError as error:
            assert len(str(error)) < 2000
    arrivals = [(number // 2, spec) for number, spec in enumerate(HONEST)]
    outcome = drive(engine, arrivals, max_steps=3000, errors=True)
    for spec in HONEST:
        assert_expected_tokens(spec, outcome)
    assert_all_memory_is_free(kv)


def test_a_decoding_strategy(fuzz: Fuzz) -> None:
    own = toy_request("own", [1, 2, 3], "liar", 12)

    def check(told: list[Answer | None]) -> None:
        assert_others_are_served(own, decodings=[LyingDecoding(told)])

    fuzz(lies(*DECISIONS), check, 60)


def test_a_logits_processor(fuzz: Fuzz) -> None:
    params = SamplingParams(max_tokens=12, stop=("greedy",), extra_args={"lie": 1})
    own = RequestSpec(id="own", prompt=[1, 2, 3], params=params, seed=0)

    def check(told: list[Answer | None]) -> None:
        assert_others_are_served(own, processors=LogitsProcessors([("liar", LyingProcessor(told))]))

    fuzz(lies(*ADJUSTMENTS), check, 40)
