"""Requests that generate nothing are served beside others: by each policy, chunked, and preempted."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor

from turnout.core.engine.engine import Engine
from turnout.core.engine.pooling.dispatch import PoolingDispatch
from turnout.core.errors import RequestError
from turnout.core.interfaces.pooling import Pooling
from turnout.core.registry.registry import Registry
from turnout.core.types.messages import Delta
from turnout.core.types.pooling import Pooled, PoolingFacts, PoolingParams, ScoreHead
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.poolings.cls import Cls
from turnout.plugins.poolings.last import Last
from turnout.plugins.poolings.mean import Mean
from turnout.plugins.poolings.token import Token
from turnout.plugins.schedulers.fcfs import Fcfs
from turnout.testing.toy.engine import toy_engine, toy_request
from turnout.testing.toy.runner import toy_kv

STRATEGIES: dict[str, Pooling] = {"mean": Mean(), "last": Last(), "cls": Cls(), "token": Token()}


def plain(vectors: Tensor, params: PoolingParams) -> Callable[[], Pooled]:
    return lambda: Pooled(vectors.float().numpy().tobytes(), tuple(vectors.shape))


def dispatch(*, encoder: bool = False, head: ScoreHead | None = None, **more: Any) -> PoolingDispatch:
    strategies = {**STRATEGIES, **more}
    facts = PoolingFacts(pooling="mean", strategies=sorted(strategies), size=2, encoder=encoder)
    return PoolingDispatch(strategies, facts, plain, head=head)


def pooled_request(name: str, prompt: list[int], **params: Any) -> RequestSpec:
    spec = toy_request(name, prompt, "greedy", 1)
    return msgspec.structs.replace(spec, pooling=PoolingParams(**params), params=SamplingParams())


def run(engine: Engine, specs: list[RequestSpec], every: int = 0) -> dict[str, Delta]:
    """The last delta of each request; `every`: steps between arrivals."""
    ended: dict[str, Delta] = {}
    todo, steps = list(specs), 0
    while todo or engine.busy:
        while todo and (not every or steps % every == 0):
            engine.add(todo.pop(0))
            if every:
                break
        for delta in engine.step():
            if delta.finish_reason:
                ended[delta.request_id] = delta
        steps += 1
        assert steps < 5000
    return ended


def vector(delta: Delta) -> list[float]:
    assert delta.pooled is not None, delta
    return torch.frombuffer(bytearray(delta.pooled.data), dtype=torch.float32).tolist()


def expected(prompt: list[int], pooling: str) -> list[float]:
    """What the toy's hidden states, token and running sum, pool to."""
    sums = torch.tensor(prompt).cumsum(0)
    states = torch.stack([torch.tensor(prompt), sums], 1).float()
    by_name = {"mean": states.double().mean(0).float(), "last": states[-1], "cls": states[0], "token": states}
    return by_name[pooling].flatten().tolist()


def prompts(count: int, seed: int = 0, most: int = 90) -> list[list[int]]:
    """Some of which begin alike, so that prefixes are cached."""
    rng = random.Random(seed)
    begun = [rng.randrange(1, 7) for _ in range(most)]
    return [
        begun[: rng.randrange(0, most // 2)]
        + [rng.randrange(1, 7) for _ in range(rng.randrange(1, most // 2))]
        for _ in range(count)
    ]


@pytest.mark.parametrize("overlaps", [False, True])
@pytest.mark.parametrize("policy", sorted(Registry.load().names("scheduler")))
def test_every_policy_serves_them_beside_those_that_generate(policy: str, overlaps: bool) -> None:
    """Memory is scarce: requests of both sorts are preempted, and computed or found anew."""
    texts = prompts(24)
    names = ["mean", "last", "cls", "token"] * 6
    specs = [pooled_request(f"p{n}", text, pooling=names[n]) for n, text in enumerate(texts)]
    chats = [toy_request(f"c{n}", text[:20], "greedy", 12) for n, text in enumerate(texts[:8])]
    alone = run(toy_engine(Fcfs(), toy_kv(64, 4)), chats)
    mixed = [spec for pair in zip(specs[:8], chats, strict=True) for spec in pair] + specs[8:]
    scheduler = Registry.load().create("scheduler", policy)
    engine = toy_engine(scheduler, toy_kv(26, 4), pooling=dispatch(), strict=True, overlaps=overlaps)
    found = run(engine, mixed, every=1)
    for spec, text, name in zip(specs, texts, names, strict=True):
        assert vector(found[spec.id]) == expected(text, name), spec.id
    for chat in chats:
        assert found[chat.id].finish_reason == alone[chat.id].finish_reason
    assert engine.scheduler.kv.free == engine.scheduler.kv.capacity


def test_a_cached_prefix_is_used_where_nothing_of_it_is_read() -> None:
    engine = toy_engine(Fcfs(), toy_kv(64, 4), pooling=dispatch())
    text = [1, 2, 3, 4, 5, 6] * 6
    cached = {
        name: run(engine, [pooled_request(name, text, pooling=name)])[name].cached_tokens
        for name in ("mean", "last", "cls", "token")
    }
    assert cached == {"mean": 0, "last": 32, "cls": 0, "token": 0}


def test_where_steps_overlap_results_come_a_step_later() -> None:
    texts = prompts(12, seed=2)
    engine = toy_engine(Fcfs(), toy_kv(64, 4), pooling=dispatch(), overlaps=True)
    found = run(engine, [pooled_request(str(n), text) for n, text in enumerate(texts)])
    assert all(vector(found[str(n)]) == expected(text, "mean") for n, text in enumerate(texts))
    assert engine.stats().running == 0


class Seeing(Fcfs):
    """Notes of which requests it is told that it did not see in the latest step."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[Any] = set()
        self.told: list[tuple[str, bool]] = []

    def order(self, view: Any) -> Any:
        self.seen = {*view.running, *view.waiting}
        return super().order(view)

    def observe(self, request: Any, tokens: int, now: float) -> None:
        self.told.append((request.id, request in self.seen))


def test_policies_are_told_once_and_while_they_see_the_request() -> None:
    """Where steps overlap, `mlfq` had dropped its notes by then, and `fair` charged a prompt twice."""
    engine = toy_engine(Seeing(), toy_kv(64, 4), budget=3, pooling=dispatch(), overlaps=True)
    chat = toy_request("chat", [1, 2, 3], "greedy", 20)
    run(engine, [chat, *(pooled_request(str(n), [1, 2, 3, 4]) for n in range(3))], every=2)
    told = [each for each in engine.scheduler.policy.told if each[0] != "chat"]
    assert sorted(told) == [("0", True), ("1", True), ("2", True)]


def test_a_request_in_flight_may_be_aborted() -> None:
    engine = toy_engine(Fcfs(), toy_kv(64, 4), pooling=dispatch(), overlaps=True)
    engine.add(pooled_request("a", [1, 2, 3]))
    assert engine.step() == []
    engine.abort("a")
    assert engine.step() == [] and not engine.busy


def test_an_encoder_computes_whole_prompts() -> None:
    """Each in one step, however the policy would cut it; a prompt that does not fit waits for the next."""
    scheduler = Registry.load().create("scheduler", "sarathi")
    engine = toy_engine(scheduler, toy_kv(64, 4), budget=48, pooling=dispatch(encoder=True))
    seen: list[list[int]] = []
    run_plan = engine.runner.run

    def watched(plan: Any) -> Any:
        seen.append([len(chunk.tokens) for chunk in plan.chunks])
        return run_plan(plan)

    engine.runner.run = watched  # type: ignore[method-assign]
    texts = [[1] * 20, [2] * 20, [3] * 40, [4] * 48]
    found = run(engine, [pooled_request(str(n), text) for n, text in enumerate(texts)])
    assert all(vector(found[str(n)]) == expected(text, "mean") for n, text in enumerate(texts))
    assert sorted(size for step in seen for size in step) == [20, 20, 40, 48]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"dimensions": 3}, "dimensions is 3, but the model's vectors have 2"),
        ({"pooling": "men"}, "no pooling is called 'men' here; known: cls, last, mean, token.*mean"),
        ({"task": "classify"}, "the model has no classification head"),
        ({"second_text": 99}, "second_text lies beyond the prompt"),
    ],
)
def test_what_cannot_be_served_is_refused(params: dict[str, Any], message: str) -> None:
    engine = toy_engine(Fcfs(), toy_kv(64, 4), pooling=dispatch())
    with pytest.raises(RequestError, match=message):
        engine.add(pooled_request("a", [1, 2], **params))


def test_an_engine_without_pooling_refuses_them() -> None:
    with pytest.raises(RequestError, match="neither embeddings nor scores"):
        toy_engine(Fcfs(), toy_kv(64, 4)).add(pooled_request("a", [1, 2]))


class Fails(Mean):
    """Fails at prompts that begin with 6."""

    where = "fold"

    def fold(self, state: Tensor | None, hidden: Tensor, first: int) -> Tensor:
        if self.where == "fold" and hidden[0, 0] == 6:
            raise ValueError("six")
        return super().fold(state, hidden, first)

    def vectors(self, state: Tensor, length: int) -> Tensor:
        if self.where == "vectors":
            return state[None]
        return super().vectors(state, length)


def test_a_fault_of_a_strategy_ends_that_request_alone() -> None:
    engine = toy_engine(Fcfs(), toy_kv(64, 4), pooling=dispatch(fails=Fails()))
    specs = [pooled_request(str(n), [n] * 9, pooling="fails") for n in (5, 6)]
    found = run(engine, specs)
    assert vector(found["5"]) == expected([5] * 9, "mean")
    assert "fold failed: ValueError: six" in found["6"].error and found["6"].error_kind == "internal"


def test_vectors_of_a_wrong_shape_are_a_fault() -> None:
    class Shapeless(Fails):
        where = "vectors"

    engine = toy_engine(Fcfs(), toy_kv(64, 4), pooling=dispatch(fails=Shapeless()))
    found = run(engine, [pooled_request("a", [1] * 9, pooling="fails")])
    assert r"gave vectors of shape [1, 2]; expected [size]" in found["a"].error


def test_vectors_that_nothing_can_be_made_of_are_a_fault_of_the_strategy() -> None:
    """Vectors of a size that the model's head does not take ended the engine, and all requests with it."""

    class Short(Mean):
        def vectors(self, state: Tensor, length: int) -> Tensor:
            return super().vectors(state, length)[:1]

    def projected(vectors: Tensor, params: PoolingParams) -> Callable[[], Pooled]:
        return plain(vectors @ torch.eye(2), params)

    facts = PoolingFacts(pooling="mean", strategies=["mean", "short"], size=2, encoder=False)
    pooling = PoolingDispatch({"mean": Mean(), "short": Short()}, facts, projected)
    engine = toy_engine(Fcfs(), toy_kv(64, 4), pooling=pooling)
    found = run(engine, [pooled_request(name, [5] * 9, pooling=name) for name in ("mean", "short")])
    assert vector(found["mean"]) == expected([5] * 9, "mean")
    assert "vectors failed: RuntimeError" in found["short"].error


def bounded_engine(pooled: int | None, **more: Any) -> Engine:
    engine = toy_engine(Fcfs(), toy_kv(256, 4), pooling=dispatch(), **more)
    engine.scheduler.capacity = replace(engine.scheduler.capacity, pooled=pooled)
    return engine


def shares_of_steps(engine: Engine, specs: list[RequestSpec]) -> list[tuple[int, int]]:
    """Of each step: tokens of requests that are pooled, and of those that generate."""
    for spec in specs:
        engine.add(spec)
    shares, plan_step = [], engine.scheduler.plan

    def planned(now: float) -> Any:
        plan, dropped = plan_step(now)
        pooled = sum(len(chunk.tokens) for chunk in plan.chunks if chunk.pooled is not None)
        shares.append((pooled, plan.tokens - pooled))
        return plan, dropped

    engine.scheduler.plan = planned  # type: ignore[method-assign]
    while engine.busy:
        engine.step()
    return shares


@pytest.mark.parametrize("policy", sorted(Registry.load().names("scheduler")))
def test_a_step_beside_those_that_generate_pools_few_tokens(policy: str) -> None:
    """Whatever the policy; what is pooled has the same vectors, and all steps to itself in the end."""
    texts = prompts(12, seed=3)
    specs = [pooled_request(f"p{n}", text) for n, text in enumerate(texts)]
    chats = [toy_request(f"c{n}", [1, 2, 3], "greedy", 20) for n in range(3)]
    engine = toy_engine(
        Registry.load().create("scheduler", policy), toy_kv(256, 4), pooling=dispatch(), strict=True
    )
    engine.scheduler.capacity = replace(engine.scheduler.capacity, pooled=3)
    steps = shares_of_steps(engine, [*chats, *specs])
    assert max(pooled for pooled, generated in steps if generated) == 3
    assert max(pooled for pooled, generated in steps if not generated) > 3
    assert sum(pooled for pooled, _ in steps) == sum(map(len, texts)), "a mean reads cached tokens, too"
    found = run(bounded_engine(3), [*chats, *specs])
    assert all(vector(found[f"p{n}"]) == expected(text, "mean") for n, text in enumerate(texts))


def test_those_that_generate_pass_embeddings_that_wait() -> None:
    """Previously a chat waited until all texts before it had been embedded, a few tokens a step."""
    texts = [pooled_request(f"p{n}", [1, 2, 3, 4] * 5) for n in range(50)]
    late = toy_request("late", [1, 2, 3], "greedy", 4)
    steps = shares_of_steps(bounded_engine(2), [*texts, late])
    generating = [number for number, (_, generated) in enumerate(steps) if generated]
    assert generating[0] == 0, "it is admitted at once"
    assert all(pooled == 2 for pooled, generated in steps if generated)


def test_without_a_bound_or_without_others_steps_are_full() -> None:
    texts = [pooled_request(f"p{n}", [1, 2, 3, 4] * 5) for n in range(20)]
    chat = toy_request("chat", [1, 2, 3], "greedy", 4)
    tokens = bounded_engine(None).scheduler.capacity.tokens
    assert shares_of_steps(bounded_engine(None), [chat, *texts])[0] == (tokens - 3, 3)
    assert shares_of_steps(bounded_engine(2), texts)[0] == (tokens, 0)
