"""A prompt's log-probabilities are the model's, however the prompt came to be computed."""

from __future__ import annotations

import random

import pytest
import torch
from driving import drain

from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams


def spec(id: str, prompt: list[int], priority: int = 0, **params: object) -> RequestSpec:
    chosen = {"max_tokens": 30, "ignore_eos": True, "temperature": 0, **params}
    return RequestSpec(id=id, prompt=prompt, params=SamplingParams(**chosen), seed=1, priority=priority)


def prompts(count: int) -> list[list[int]]:
    rng = random.Random(3)
    return [[rng.randrange(160) for _ in range(rng.randrange(2, 90))] for _ in range(count)]


def scores(engine, specs):
    """By request id: the prompt's tokens from the second on, with log-probability and the most likely."""
    deltas = []
    for one in specs:  # one after the other, so that later ones may be more urgent
        engine.add(one)
        deltas += engine.step()
    told = [delta for delta in deltas + drain(engine) if delta.prompt_logprobs is not None]
    assert len(told) == len({delta.request_id for delta in told}), "told once"
    return {delta.request_id: delta.prompt_logprobs for delta in told}


@pytest.fixture(scope="module")
def theirs(random_model):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(random_model, dtype=torch.float32).eval()

    def logprobs(prompt: list[int]) -> torch.Tensor:
        with torch.inference_mode():
            return torch.log_softmax(model(torch.tensor([prompt])).logits[0, :-1].float(), dim=-1)

    return logprobs


def test_they_are_what_transformers_computes(make_engine, theirs):
    listed = prompts(6)
    found = scores(make_engine(), [spec(str(i), p, prompt_logprobs=3) for i, p in enumerate(listed)])
    for i, prompt in enumerate(listed):
        expected = theirs(prompt)
        entries = found[str(i)]
        assert [entry.token for entry in entries] == prompt[1:]
        for entry, row in zip(entries, expected, strict=True):
            assert entry.logprob == pytest.approx(row[entry.token].item(), abs=1e-4)
            assert [value for _, value in entry.top] == pytest.approx(row.topk(3).values.tolist(), abs=1e-4)


@pytest.mark.parametrize(
    ("n", "kv"),
    [
        (1, "contiguous"),
        (3, "paged"),
        pytest.param(1, "paged", marks=pytest.mark.slow),
        pytest.param(3, "contiguous", marks=pytest.mark.slow),
    ],
)
def test_chunks_preemption_and_cached_prefixes_change_nothing(make_engine, kv, n):
    specs = [
        spec(str(i), prompt, -i, prompt_logprobs=0, n=n, temperature=0.7)
        for i, prompt in enumerate(prompts(6))
    ]
    alone = {k: v for one in specs for k, v in scores(make_engine(), [one]).items()}

    short = make_engine(n * 144, max_num_batched_tokens=16, kv=kv, scheduler="priority", max_model_len=128)
    for _ in range(2):  # the second time, some prefixes are still there
        again = scores(short, specs)
        for id, entries in alone.items():
            assert [e.token for e in again[id]] == [e.token for e in entries]
            assert [e.logprob for e in again[id]] == pytest.approx([e.logprob for e in entries], abs=1e-4)
    assert short.stats().preemptions > 0


def test_only_what_is_scored_is_computed_again(make_engine):
    """A request without them still finds the prefix of one that has it."""
    engine, prompt = make_engine(), [5] * 64
    scores(engine, [spec("a", prompt, prompt_logprobs=1, max_tokens=1)])
    scores(engine, [spec("b", prompt, max_tokens=1)])
    assert engine.stats().computed_tokens == 64 + 16
    assert scores(engine, [spec("c", prompt, prompt_logprobs=1, max_tokens=1)])["c"]
    assert engine.stats().computed_tokens == 64 + 16 + 64


def test_a_prompt_of_one_token_has_none(make_engine):
    assert scores(make_engine(), [spec("a", [7], prompt_logprobs=1)]) == {"a": []}
