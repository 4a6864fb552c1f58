"""KV in 8 bits: close to what it is computed in, and the same whatever happens to a request on its way."""

from __future__ import annotations

import inspect
import json.decoder
import random
from collections.abc import Callable

import pytest
import torch
from driving import run
from torch import Tensor

from turnout.config import EngineConfig
from turnout.core.engine.engine import Engine
from turnout.core.interfaces.kv import Span
from turnout.core.types.plan import Chunk, Plan
from turnout.core.types.request import Request, RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.decoding.greedy import Greedy
from turnout.runner.assembly import build_engine
from turnout.text.tokenizer import load_tokenizer

EngineMaker = Callable[..., Engine]


def requests() -> list[RequestSpec]:
    rng = random.Random(0)
    chosen = [{"temperature": 0.0}, {"n": 2, "temperature": 0.8}, {"top_p": 0.9}] * 4
    return [
        RequestSpec(
            id=str(i),
            prompt=[rng.randrange(160) for _ in range(rng.randrange(1, 60))],
            params=SamplingParams(max_tokens=40, ignore_eos=True, **each),
            seed=100 + i,
        )
        for i, each in enumerate(chosen)
    ]


# Memory for about 240 positions, in positions of float32: two requests, or both choices of one.
@pytest.mark.parametrize(
    ("kv", "scheduler", "stored", "tokens"),
    [
        ("paged", "fcfs", "int8", 68),
        pytest.param("contiguous", "mlfq:quantum=16", "fp8", 68, marks=pytest.mark.slow),
        pytest.param("paged", "fcfs", "fp8", 68, marks=pytest.mark.slow),
        pytest.param("paged", "fcfs", "bfloat16", 120, marks=pytest.mark.slow),
        pytest.param("contiguous", "mlfq:quantum=16", "int8", 68, marks=pytest.mark.slow),
        pytest.param("contiguous", "mlfq:quantum=16", "bfloat16", 120, marks=pytest.mark.slow),
    ],
)
def test_the_same_tokens_after_swapping_in_chunks_and_alone(
    kv: str, scheduler: str, stored: str, tokens: int, make_engine: EngineMaker
) -> None:
    kv = f"{kv}:dtype={stored}"
    expected = run(make_engine(kv=kv), requests())
    alone = make_engine(kv=kv)
    assert {key: tokens for spec in requests() for key, tokens in run(alone, [spec]).items()} == expected

    options = {"kv": kv, "scheduler": scheduler, "swap_memory": "4MiB", "preemption": "swap"}
    short = make_engine(tokens=tokens, max_num_batched_tokens=32, max_model_len=100, **options)
    assert run(short, requests()) == expected
    assert short.stats().swap_outs > 0


def test_a_quarter_of_the_bytes_holds_nearly_four_times_as_much(make_engine: EngineMaker) -> None:
    plain, int8 = make_engine(tokens=1024), make_engine(tokens=1024, kv="paged:dtype=int8")
    # Heads of 16 numbers, the smallest there are: 64 bytes become 16 and a scale of 2.
    assert int8.scheduler.kv.capacity == plain.scheduler.kv.capacity * 64 // 18 // 16 * 16


# ------------------------------------------------------------------ on a real model


def build_tiny(kv: str) -> Engine:
    config = EngineConfig(model="turnout-tiny", kv=kv, kv_memory="32MiB", device="cpu", dtype="float32")
    return build_engine(config).engine


def prompts() -> list[list[int]]:
    from turnout.models.hub.resolve import resolve_model

    tokens = load_tokenizer(resolve_model("turnout-tiny")).encode(inspect.getsource(json.decoder))
    return [tokens[start : start + 128] for start in range(0, 12 * 128, 128)]


def scores(engine: Engine, prompt: list[int], output: list[int]) -> Tensor:
    """Logits at each position of an output that is given: [tokens, vocab_size]."""
    tokens, kv = [*prompt, *output], engine.scheduler.kv
    spec = RequestSpec(id="forced", prompt=tokens, params=SamplingParams(), seed=0)
    (sequence,) = Request(spec, Greedy(), 0.0, len(tokens), frozenset()).live
    assert kv.reserve([Span(sequence, 0, len(tokens))])
    logits = engine.runner.run(Plan([Chunk(sequence, 0, tokens, len(output) + 1)], kv.drain()))
    kv.release([sequence])
    return logits.values[:-1]


def greedy_requests() -> list[RequestSpec]:
    params = SamplingParams(temperature=0, max_tokens=64, ignore_eos=True)
    return [RequestSpec(id=str(i), prompt=p, params=params, seed=0) for i, p in enumerate(prompts())]


@pytest.fixture(scope="module")
def exact() -> dict[str, list[int]]:
    """Tokens by request, with keys and values as they are computed."""
    engine, specs = build_tiny("paged"), greedy_requests()
    answers = {name: tokens for (name, _), tokens in run(engine, specs).items()}
    for spec in specs:
        assert scores(engine, spec.prompt, answers[spec.id]).argmax(-1).tolist() == answers[spec.id]
    return answers


@pytest.mark.parametrize(
    ("kv", "forced", "free"),
    [
        ("paged:dtype=int8", 0.99, 0.9),
        pytest.param("paged:dtype=bfloat16", 0.99, 0.9, marks=pytest.mark.slow),
        pytest.param("contiguous:dtype=int8", 0.99, 0.9, marks=pytest.mark.slow),
        pytest.param("paged:dtype=fp8", 0.98, 0.6, marks=pytest.mark.slow),
    ],
)
def test_greedy_tokens_of_the_embedded_model_agree(
    exact: dict[str, list[int]], kv: str, forced: float, free: float
) -> None:
    """Of 64 tokens each. Forced: the most likely token where the text so far is given. Free: all tokens
    before the first that differs, after which the texts are no longer the same."""
    engine, specs = build_tiny(kv), greedy_requests()
    given = run(engine, specs)
    same_choice, same_start = [], []
    for spec in specs:
        ours = torch.tensor(exact[spec.id])
        chosen = scores(engine, spec.prompt, exact[spec.id]).argmax(-1)
        same_choice += chosen.eq(ours).tolist()
        same_start += torch.tensor(given[spec.id, 0]).eq(ours).cumprod(0).tolist()
    assert len(same_choice) == len(same_start) == 12 * 64
    assert sum(same_choice) / len(same_choice) >= forced
    assert sum(same_start) / len(same_start) >= free
