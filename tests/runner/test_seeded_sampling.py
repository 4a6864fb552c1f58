"""A request gives the same tokens for the same seed: alone, in a batch, and after preemption."""

from __future__ import annotations

import random
from typing import Any

import pytest
from driving import drain, run

from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams

PARAMS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.7, "top_p": 0.9},
    {"top_k": 20},
    {"min_p": 0.05, "repetition_penalty": 1.2},
    {"temperature": 1.5, "presence_penalty": 0.5, "logit_bias": {7: 2.0}},
    {"temperature": 0},
]


def requests(n: int = 1) -> list[RequestSpec]:
    rng = random.Random(0)
    return [
        RequestSpec(
            id=str(i),
            prompt=[rng.randrange(160) for _ in range(rng.randrange(1, 60))],
            params=SamplingParams(n=n, max_tokens=40, ignore_eos=True, **params),
            seed=100 + i,
        )
        for i, params in enumerate(PARAMS * 2)
    ]


@pytest.mark.parametrize(
    "n", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(3, marks=pytest.mark.slow)]
)
def test_alone_in_a_batch_and_after_preemption(n, make_engine):
    engine = make_engine()
    alone = {key: tokens for spec in requests(n) for key, tokens in run(engine, [spec]).items()}
    assert run(make_engine(), requests(n)) == alone
    assert run(make_engine(kv="contiguous"), requests(n)) == alone

    short = make_engine(tokens=336, max_num_batched_tokens=32)
    assert run(short, requests(n)) == alone
    assert short.stats().preemptions > 0


@pytest.mark.parametrize(
    ("kv", "scheduler", "n"),
    [
        ("paged", "fcfs", 3),
        ("contiguous", "mlfq:quantum=16", 1),
        pytest.param("paged", "fcfs", 1, marks=pytest.mark.slow),
        pytest.param("contiguous", "mlfq:quantum=16", 3, marks=pytest.mark.slow),
    ],
)
def test_swapped_out_and_brought_back(n, kv, scheduler, make_engine):
    """No work is lost: all that is computed is kept, so no token is computed twice."""
    options = {"kv": kv, "scheduler": scheduler, "max_num_batched_tokens": 32}
    roomy, short = (
        make_engine(**options),
        make_engine(tokens=336, swap_memory="4MiB", preemption="swap", **options),
    )
    assert run(short, requests(n)) == run(roomy, requests(n))
    assert short.stats().swap_outs == short.stats().preemptions > 0
    assert short.stats().computed_tokens == roomy.stats().computed_tokens


def test_choices_differ_from_each_other_and_with_the_seed(make_engine):
    (spec, *_) = requests(n=4)
    choices = run(make_engine(), [spec])
    assert len({tuple(tokens) for tokens in choices.values()}) == 4
    other = RequestSpec(id="0", prompt=spec.prompt, params=spec.params, seed=spec.seed + 1)
    assert run(make_engine(), [other]) != choices


def test_choices_share_the_prompt(make_engine):
    """Eight choices compute the prompt once, and hold its blocks once."""
    engine = make_engine()
    params = SamplingParams(n=8, max_tokens=5, ignore_eos=True)
    engine.add(RequestSpec(id="r", prompt=[3] * 160, params=params, seed=1))
    held = []
    while engine.busy:
        held.append(engine.scheduler.kv.capacity - engine.scheduler.kv.free)
        engine.step()
    assert engine.stats().computed_tokens == 160 + 8 * 4
    assert max(held) == 160 + 8 * 16, "the shared prompt, and one block for each choice"


def test_min_tokens_holds_stops_back(make_engine):
    spec = requests()[0]
    first = run(make_engine(), [spec])[("0", 0)][0]
    params = SamplingParams(max_tokens=40, stop_token_ids=(first,), ignore_eos=True, min_tokens=6)
    engine = make_engine()
    engine.add(RequestSpec(id="0", prompt=spec.prompt, params=params, seed=spec.seed))
    tokens = [token for delta in drain(engine) for token in delta.tokens]
    assert first not in tokens[:6]


def test_logprobs_come_with_every_token(make_engine):
    engine = make_engine()
    params = SamplingParams(max_tokens=9, ignore_eos=True, logprobs=3, n=2)
    engine.add(RequestSpec(id="r", prompt=[1, 2, 3], params=params, seed=1))
    for delta in drain(engine):
        assert delta.logprobs is not None
        assert [detail.token for detail in delta.logprobs] == delta.tokens
        assert all(len(detail.top) == 3 and detail.logprob <= detail.top[0][1] for detail in delta.logprobs)
