"""With speculation the answers are those without it, token by token: always when greedy, and for any seed
when verified exactly; whatever the memory, the chunks, the backend and the draft."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from speculating import assert_nothing_is_kept, drain, run, speculative

from turnout.core.engine.engine import Engine
from turnout.core.types.request import RequestSpec
from turnout.core.types.sampling_params import SamplingParams

MakeEngine = Callable[..., Engine]
Answers = dict[tuple[str, int], list[int]]

CIRCUMSTANCES: dict[str, dict[str, Any]] = {
    "room for all": {},
    "small chunks": {"max_num_batched_tokens": 24, "max_num_seqs": 6},
    "preemption": {"tokens": 400, "max_num_seqs": 16, "max_num_batched_tokens": 64, "max_model_len": 128},
    "no prefix caching": {"kv": "paged:block_size=4,prefix_caching=false"},
    "contiguous": {"kv": "contiguous", "tokens": 2048, "max_model_len": 128},
    "little memory for the draft": {"memory": 400_000},
}
MANY_STEPS = ("small chunks", "preemption")
"""Seconds with a draft model, as `test_every_sampling_parameter_is_verified_exactly` has them too."""


def decoding(draft: str, model: Path, *, k: int = 3, more: str = "", memory: int | None = None) -> str:
    """Not adaptive, so that there is something to be tested."""
    proposer = "ngram:shortest=1"
    if draft == "model":
        proposer = f"draft-model:model={model}" + (f",memory={memory}" if memory else "")
    return f"speculative:proposer='{proposer}',k={k},adaptive=false{more}"


def prompts(count: int) -> list[list[int]]:
    """Some start alike, and many repeat themselves, as text does."""
    rng = random.Random(7)
    shared = [rng.randrange(160) for _ in range(33)]
    made = []
    for number in range(count):
        own = [rng.randrange(160) for _ in range(rng.randrange(1, 24))]
        made.append((shared if number % 3 == 0 else []) + own * rng.randrange(1, 3))
    return made


def greedy_requests(count: int) -> list[RequestSpec]:
    params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
    return [
        RequestSpec(id=str(i), prompt=prompt, params=params, seed=i)
        for i, prompt in enumerate(prompts(count))
    ]


@pytest.fixture(scope="module")
def plain_answers() -> Answers:
    return {}


@pytest.mark.parametrize(
    ("draft", "circumstance"),
    [("ngram", name) for name in CIRCUMSTANCES if "draft" not in name]
    + [
        pytest.param("model", name, marks=[pytest.mark.slow] if name in MANY_STEPS else [])
        for name in CIRCUMSTANCES
    ],
)
def test_greedy_answers_of_two_hundred_prompts_or_sixty(
    draft: str, circumstance: str, draft_model: Path, make_engine: MakeEngine, plain_answers: Answers
) -> None:
    if not plain_answers:
        plain_answers |= run(make_engine(), greedy_requests(200))
    count = 200 if circumstance in ("room for all", "preemption") else 60
    options = dict(CIRCUMSTANCES[circumstance])
    spec = decoding(draft, draft_model, memory=options.pop("memory", None))
    engine = make_engine(decoding=spec, **options)
    expected = {key: tokens for key, tokens in plain_answers.items() if int(key[0]) < count}
    assert run(engine, greedy_requests(count)) == expected
    counters = engine.stats().counters
    assert 20 < counters["spec_decode_num_accepted_tokens"] < counters["spec_decode_num_draft_tokens"]
    assert (engine.stats().preemptions > 0) == (circumstance == "preemption")


PARAMS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.7, "top_p": 0.9},
    {"top_k": 20, "temperature": 0.5},
    {"min_p": 0.05, "repetition_penalty": 1.2},
    {"temperature": 0.6, "presence_penalty": 0.5, "logit_bias": {7: 2.0}, "frequency_penalty": 0.3},
    {"temperature": 0, "repetition_penalty": 1.3},
    {"temperature": 0.4, "min_tokens": 6, "stop_token_ids": list(range(0, 160, 5))},
    {"temperature": 0.4, "bad_words_token_ids": [[3], [5, 6]], "logprobs": 2},
]


def varied_requests(n: int = 1, **more: Any) -> list[RequestSpec]:
    return [
        RequestSpec(
            id=str(i),
            prompt=prompt,
            params=SamplingParams(n=n, max_tokens=30, ignore_eos=True, **{**PARAMS[i % len(PARAMS)], **more}),
            seed=100 + i,
        )
        for i, prompt in enumerate(prompts(2 * len(PARAMS)))
    ]


@pytest.mark.parametrize(
    ("draft", "n"),
    [
        pytest.param("ngram", 1, marks=pytest.mark.slow),
        ("ngram", 3),
        ("model", 1),
        pytest.param("model", 3, marks=pytest.mark.slow),
    ],
)
def test_every_sampling_parameter_is_verified_exactly(
    draft: str, n: int, draft_model: Path, make_engine: MakeEngine
) -> None:
    expected = run(make_engine(), varied_requests(n))
    spec = decoding(draft, draft_model, more=",verify=exact")
    engine = make_engine(decoding=spec)
    assert run(engine, varied_requests(n)) == expected
    assert engine.stats().counters["spec_decode_num_accepted_tokens"] > (50 if draft == "model" else 0)
    assert run(make_engine(decoding=spec, kv="contiguous"), varied_requests(n)) == expected
    short = make_engine(decoding=spec, tokens=336, max_num_batched_tokens=32)
    assert run(short, varied_requests(n)) == expected
    assert short.stats().preemptions > 0


def test_a_seed_that_the_client_names_is_verified_exactly_without_being_asked_to(
    draft_model: Path, make_engine: MakeEngine
) -> None:
    expected = run(make_engine(), varied_requests(seed=5))
    assert run(make_engine(decoding=decoding("model", draft_model)), varied_requests(seed=5)) == expected


def test_the_flags_wrap_whatever_decodes_otherwise(draft_model: Path, make_engine: MakeEngine) -> None:
    for chosen in ("sampling:temperature=0.4", "greedy"):
        expected = run(make_engine(decoding=chosen), varied_requests(seed=5))
        for flags in ({"spec_ngram": True}, {"spec_draft": str(draft_model), "spec_tokens": 2}):
            assert run(make_engine(decoding=chosen, **flags), varied_requests(seed=5)) == expected


# ------------------------------------------------------------------ details


def test_log_probabilities_come_with_every_token(draft_model: Path, make_engine: MakeEngine) -> None:
    params = SamplingParams(max_tokens=25, ignore_eos=True, logprobs=3, n=2, temperature=0.3, seed=1)
    spec = RequestSpec(id="r", prompt=[1, 2, 3], params=params, seed=1)
    plain, speculating = make_engine(), make_engine(decoding=decoding("model", draft_model))
    scores = []
    for engine in (plain, speculating):
        engine.add(spec)
        scores.append({0: [], 1: []})
        for delta in drain(engine):
            assert [detail.token for detail in delta.logprobs] == delta.tokens
            scores[-1][delta.index] += [detail.logprob for detail in delta.logprobs]
    assert speculating.stats().steps < plain.stats().steps
    for index in (0, 1):
        assert scores[0][index] == pytest.approx(scores[1][index], abs=1e-4)


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_a_stop_inside_the_accepted_drafts_ends_the_answer_there(
    every: int, draft_model: Path, make_engine: MakeEngine
) -> None:
    (spec,) = greedy_requests(1)
    whole = run(make_engine(), [spec])["0", 0]
    for stop in whole[2:12:every]:
        params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True, stop_token_ids=(stop,))
        engine = make_engine(decoding=decoding("model", draft_model, k=8))
        answer = run(engine, [RequestSpec(id="0", prompt=spec.prompt, params=params, seed=0)])["0", 0]
        assert answer == whole[: whole.index(stop) + 1]


@pytest.mark.parametrize("draft", ["ngram", "model"])
def test_nothing_is_kept_of_requests_that_are_aborted(
    draft: str, draft_model: Path, make_engine: MakeEngine
) -> None:
    engine = make_engine(decoding=decoding(draft, draft_model), tokens=2000, max_num_batched_tokens=48)
    for step in (0, 1, 2, 3, 5, 8, 13):
        for spec in varied_requests(n=2)[:6]:
            engine.add(spec)
        for _ in range(step):
            engine.step()
        for number in range(6):
            engine.abort(str(number), index=number % 2)
        engine.step()
        for number in range(6):
            engine.abort(str(number))
        assert not engine.busy
        assert_nothing_is_kept(engine)


def test_the_draft_is_not_asked_beyond_its_own_context(
    draft_model: Path, make_engine: MakeEngine, tmp_path: Path
) -> None:
    short = tmp_path / "short"
    short.mkdir()
    for file in draft_model.iterdir():
        (short / file.name).write_bytes(file.read_bytes())
    config = (short / "config.json").read_text()
    (short / "config.json").write_text(
        config.replace('"max_position_embeddings": 512', '"max_position_embeddings": 48')
    )
    params = SamplingParams(temperature=0, max_tokens=100, ignore_eos=True)
    spec = RequestSpec(id="r", prompt=list(range(20)), params=params, seed=0)
    engine = make_engine(decoding=decoding("model", short))
    assert run(engine, [spec]) == run(make_engine(), [spec])
    positions = 20 + 100 - engine.stats().counters["spec_decode_num_accepted_tokens"]
    assert 0 < engine.stats().counters["spec_decode_num_draft_tokens"] <= 3 * (48 - 20)
    assert positions > 48


def test_what_the_draft_knows_survives_preemption(draft_model: Path, make_engine: MakeEngine) -> None:
    """The draft computes a preempted sequence's prompt once, not again when it comes back."""
    engine = make_engine(decoding=decoding("model", draft_model), tokens=336, max_num_batched_tokens=64)
    memory = speculative(engine)._proposer._memory
    seen: dict[int, int] = {}
    known = memory.valid

    def watched(sequence):
        now = known(sequence)
        assert now >= seen.get(sequence.id, 0), "what was known is known no more"
        seen[sequence.id] = now
        return now

    memory.valid = watched
    run(engine, greedy_requests(12))
    assert engine.stats().preemptions > 0
