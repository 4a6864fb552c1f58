"""turnout-tiny and its draft, on code that neither was trained on: greedy answers stay what they are."""

from __future__ import annotations

import random

import pytest
from speculating import run

from turnout.config import EngineConfig
from turnout.core.engine.engine import Engine
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.models.hub.resolve import resolve_model
from turnout.models.tiny.corpus import load_corpus
from turnout.runner.assembly import build_engine
from turnout.text.tokenizer import load_tokenizer

PROMPTS = 200


@pytest.fixture(scope="module")
def requests() -> list[RequestSpec]:
    tokenizer, rng = load_tokenizer(resolve_model("turnout-tiny")), random.Random(0)
    texts = [tokenizer.encode(document.text) for document in load_corpus().held_out]
    texts = [text for text in texts if len(text) > 200]
    params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
    specs = []
    for number in range(PROMPTS):
        text, length = rng.choice(texts), rng.randrange(8, 96)
        start = rng.randrange(len(text) - length)
        specs.append(
            RequestSpec(id=str(number), prompt=text[start : start + length], params=params, seed=number)
        )
    return specs


def engine(decoding: str) -> Engine:
    config = EngineConfig(
        model="turnout-tiny", dtype="float32", kv_memory="64MiB", max_num_seqs=16, decoding=decoding
    )
    return build_engine(config).engine


@pytest.fixture(scope="module")
def plain_answers(requests: list[RequestSpec]) -> dict[tuple[str, int], list[int]]:
    return run(engine("greedy"), requests)


@pytest.mark.slow
@pytest.mark.parametrize("options", ["draft=turnout-tiny-draft", "ngram=true"])
@pytest.mark.parametrize("adaptive", ["false", "true"])
def test_two_hundred_greedy_answers(
    options: str,
    adaptive: str,
    requests: list[RequestSpec],
    plain_answers: dict[tuple[str, int], list[int]],
) -> None:
    speculating = engine(f"speculative:{options},k=4,adaptive={adaptive}")
    answers = run(speculating, requests)
    assert [key for key in answers if answers[key] != plain_answers[key]] == []
    if adaptive == "false":
        assert speculating.stats().counters["spec_decode_num_accepted_tokens"] > 500
