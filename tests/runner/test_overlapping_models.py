"""Tokens are the same where a step begins before those of the step before are known, whatever else is on."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
import torch
from driving import drain, run
from test_seeded_sampling import PARAMS, requests

from turnout.config import EngineConfig
from turnout.core.types.messages import Delta
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.runner.assembly import build_engine
from turnout.runner.execution.step_inputs import look_up


@pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"kv": "contiguous"}, marks=pytest.mark.slow),
        pytest.param({"tokens": 336, "max_num_batched_tokens": 32}, marks=pytest.mark.slow),
        {"tokens": 336, "max_num_batched_tokens": 32, "swap_memory": "4MiB", "preemption": "swap"},
        pytest.param(
            {"scheduler": "mlfq:quantum=16", "max_num_seqs": 8, "max_num_batched_tokens": 32},
            marks=pytest.mark.slow,
        ),
        pytest.param({"spec_ngram": True}, marks=pytest.mark.slow),
        {"decoding": "speculative:ngram=true,adaptive=false"},
        pytest.param({"kv": "paged:dtype=int8"}, marks=pytest.mark.slow),
        pytest.param({"quantization": "int8"}, marks=pytest.mark.slow),
        {"cpu_kernels": "torch"},
    ],
    ids=lambda options: ",".join(f"{name}={value}" for name, value in options.items()) or "plain",
)
def test_seeded_requests_get_their_tokens(n: int, options: dict[str, Any], make_engine) -> None:
    overlapping = make_engine(async_scheduling=True, **options)
    assert run(overlapping, requests(n)) == run(make_engine(**options), requests(n))
    stats = overlapping.stats()
    assert stats.kv_free == stats.kv_capacity
    assert stats.preemptions > 0 or "tokens" not in options


def test_what_comes_with_tokens_is_the_same(make_engine) -> None:
    """Log-probabilities, of the prompt too, why and by what an answer ended, and structure."""
    rng = random.Random(1)
    prompts = [[rng.randrange(160) for _ in range(rng.randrange(2, 40))] for _ in range(6)]
    params = [
        SamplingParams(temperature=0, logprobs=3, prompt_logprobs=2, max_tokens=12),
        SamplingParams(temperature=0, logprobs=0, max_tokens=12, n=2),
        SamplingParams(temperature=0.8, logprobs=2, max_tokens=30, stop_token_ids=tuple(range(0, 160, 7))),
        SamplingParams(temperature=1.1, max_tokens=20, frequency_penalty=0.8, min_tokens=4),
        SamplingParams(use_beam_search=True, n=2, max_tokens=5),
        SamplingParams(temperature=1.0, max_tokens=25, bad_words_token_ids=((3, 4), (5,))),
    ]

    def served(**options: Any) -> dict[tuple[str, int], list[Delta]]:
        engine = make_engine(**options)
        for number, (prompt, chosen) in enumerate(zip(prompts, params, strict=True)):
            engine.add(RequestSpec(id=str(number), prompt=prompt, params=chosen, seed=number))
        told: dict[tuple[str, int], list[Delta]] = {}
        for delta in drain(engine):
            delta = msgspec.structs.replace(delta, begun=None)  # seconds, which are never the same
            told.setdefault((delta.request_id, delta.index), []).append(delta)
        return told

    assert served(async_scheduling=True) == served()


def test_start_up_says_so_and_a_cpu_has_nothing_to_gain() -> None:
    def said(**options: Any) -> bool:
        config = EngineConfig(device="cpu", kv_memory="1MiB", max_model_len=64, **options)
        return any(line.startswith("steps overlap") for line in build_engine(config).ready.summary)

    assert said(async_scheduling=True)
    assert not said() and not said(async_scheduling=False)


def test_a_step_of_greedy_and_sampled_requests_looks_tokens_up_in_both() -> None:
    chosen = torch.tensor([50, 51]), torch.tensor([60, 61, 62])
    assert look_up(torch.tensor([7, -1, -2, -3, 0, -5]), chosen).tolist() == [7, 50, 51, 60, 0, 62]
    assert look_up(torch.tensor([7, 8]), ()).tolist() == [7, 8]
    assert any(each.get("temperature") == 0 for each in PARAMS), "requests() mix them"
