"""Beams and their scores are transformers' own, in fp32: alone and in batches, under both KV backends, in
small chunks, and when memory is so short that requests are preempted in the middle of their search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from beam_reference import Beams, Reference, Search
from driving import drain

from turnout.core.engine.engine import Engine
from turnout.core.types.messages import Delta
from turnout.core.types.request import RequestSpec

MakeEngine = Callable[..., Engine]

FEW, SOME, MANY = (77,), (7, 30, 77, 146), (7, 30, 77, 146, 18, 92, 29, 37, 139, 159)
"""Stop tokens, of a vocabulary of 160."""
SEARCHES = [
    Search(width, penalty, early, stops)
    for width in (2, 4, 8)
    for penalty, early, stops in (
        (1.0, False, SOME),
        (1.0, True, SOME),
        (1.0, "never", FEW),
        (0.0, "never", MANY),
        (2.0, False, MANY),
        (2.0, "never", SOME),
        (-1.0, False, SOME),
        (-1.0, "never", MANY),
        (-0.5, True, FEW),
        (0.6, True, ()),
    )
]
AS_EIGHT = (4, 8, 10, 26)
"""Of each width, penalty and way to end early; `test_searches_of_all_kinds_in_one_batch` has all of them."""
ONE_OF_EACH_WIDTH = [
    pytest.param(SEARCHES[1], marks=pytest.mark.slow),
    SEARCHES[14],
    pytest.param(SEARCHES[20], marks=pytest.mark.slow),
]


@pytest.fixture(scope="session")
def theirs(random_model: Path) -> Reference:
    from transformers import AutoModelForCausalLM

    model_class: Any = AutoModelForCausalLM
    return Reference(model_class.from_pretrained(random_model, dtype=torch.float32).eval())


def serve(engine: Engine, specs: Sequence[RequestSpec]) -> dict[str, list[Delta]]:
    """Choices by request, best first."""
    for spec in specs:
        engine.add(spec)
    choices: dict[str, dict[int, Delta]] = {spec.id: {} for spec in specs}
    for delta in drain(engine):
        assert delta.finish_reason and delta.index not in choices[delta.request_id]
        choices[delta.request_id][delta.index] = delta
    assert engine.scheduler.kv.free == engine.scheduler.kv.capacity
    return {name: [found[index] for index in sorted(found)] for name, found in choices.items()}


def specs(beams: Sequence[Beams], search: Search, **params: Any) -> list[RequestSpec]:
    return [
        RequestSpec(id=str(number), prompt=prompt, params=search.params(**params), seed=0)
        for number, (prompt, *_) in enumerate(beams)
    ]


def check(found: dict[str, list[Delta]], expected: Sequence[Beams], search: Search) -> None:
    for number, (_, tokens, scores) in enumerate(expected):
        choices = found[str(number)]
        assert [choice.tokens for choice in choices] == tokens[: len(choices)]
        assert [choice.score for choice in choices] == pytest.approx(
            scores[: len(choices)], abs=2e-5, rel=2e-5
        )
        for choice in choices:
            assert choice.score is not None and choice.cumulative_logprob is not None
            length = len(choice.tokens) ** search.length_penalty
            assert choice.cumulative_logprob / length == pytest.approx(choice.score, rel=1e-5)
            stopped = choice.tokens[-1] in search.stops
            assert choice.finish_reason == ("stop" if stopped else "length")
            assert choice.stop_token == (choice.tokens[-1] if stopped else None)


@pytest.mark.parametrize(
    "search",
    [
        pytest.param(search, marks=[] if number in AS_EIGHT else [pytest.mark.slow])
        for number, search in enumerate(SEARCHES)
    ],
    ids=str,
)
def test_eight_together(theirs: Reference, make_engine: MakeEngine, search: Search) -> None:
    expected = theirs.beams(search, 8)
    check(serve(make_engine(), specs(expected, search)), expected, search)


@pytest.mark.parametrize("search", ONE_OF_EACH_WIDTH, ids=str)
@pytest.mark.parametrize("kv", ["contiguous", "paged:block_size=4,prefix_caching=false"])
def test_alone_under_other_kv_backends_and_in_small_chunks(
    theirs: Reference, make_engine: MakeEngine, kv: str, search: Search
) -> None:
    engine = make_engine(kv=kv, max_num_batched_tokens=max(8, search.width))
    for beams in theirs.beams(search, 3):
        check(serve(engine, specs([beams], search)), [beams], search)
    assert engine.stats().preemptions == 0


@pytest.mark.parametrize("search", ONE_OF_EACH_WIDTH, ids=str)
@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_preempted_in_the_middle_of_the_search(
    theirs: Reference, make_engine: MakeEngine, search: Search, preemption: str
) -> None:
    expected = theirs.beams(search, 8)
    # Room for one request's beams if they shared nothing; since they do, more than one is admitted.
    engine = make_engine(
        tokens=64 * search.width,
        max_num_batched_tokens=24,
        preemption=preemption,
        swap_memory=2**22 if preemption == "swap" else None,
    )
    check(serve(engine, specs(expected, search)), expected, search)
    assert engine.stats().preemptions > 0
    assert (engine.stats().swap_outs > 0) == (preemption == "swap")


@pytest.mark.parametrize("search", ONE_OF_EACH_WIDTH, ids=str)
def test_contiguous_memory_for_one_request_at_a_time(
    theirs: Reference, make_engine: MakeEngine, search: Search
) -> None:
    expected = theirs.beams(search, 4)
    engine = make_engine(tokens=57 * search.width, kv="contiguous")
    check(serve(engine, specs(expected, search)), expected, search)


def test_searches_of_all_kinds_in_one_batch(theirs: Reference, make_engine: MakeEngine) -> None:
    """Ranked in groups of one shape, and never confused."""
    expected = [(search, theirs.beams(search, 1)[0]) for search in SEARCHES]
    asked = [
        RequestSpec(id=str(number), prompt=beams.prompt, params=search.params(), seed=0)
        for number, (search, beams) in enumerate(expected)
    ]
    found = serve(make_engine(), asked)
    for number, (search, beams) in enumerate(expected):
        check({"0": found[str(number)]}, [beams], search)


def test_fewer_choices_than_beams_are_the_best_ones(theirs: Reference, make_engine: MakeEngine) -> None:
    search = Search(4)
    expected = theirs.beams(search, 8)
    for n in (1, 3):
        found = serve(make_engine(), specs(expected, search, n=n))
        assert {len(choices) for choices in found.values()} == {n}
        check(found, expected, search)


@pytest.mark.parametrize(
    ("adjustments", "params"),
    [
        ({"repetition_penalty": 1.4}, {"repetition_penalty": 1.4}),
        ({"min_new_tokens": 20}, {"min_tokens": 20}),
        ({"sequence_bias": [[[77], 2.0], [[3], -4.0]]}, {"logit_bias": {77: 2.0, 3: -4.0}}),
    ],
    ids=lambda given: next(iter(given)),
)
def test_adjustments_are_of_log_probabilities(
    theirs: Reference, make_engine: MakeEngine, adjustments: dict[str, Any], params: dict[str, Any]
) -> None:
    """Where transformers has them in a beam search: after the softmax, not before. Ranks follow them,
    log-probabilities stay the model's own."""
    search = Search(4, stops=MANY, adjustments=adjustments)
    plain = {tuple(b.prompt): b.tokens for b in theirs.beams(Search(4, stops=MANY), 8)}
    expected = theirs.beams(search, 8)
    assert any(beams.tokens != plain.get(tuple(beams.prompt)) for beams in expected)
    found = serve(make_engine(), specs(expected, search, **params))
    for number, beams in enumerate(expected):
        choices = found[str(number)]
        assert [choice.tokens for choice in choices] == beams.tokens
        assert [choice.score for choice in choices] == pytest.approx(beams.scores, rel=2e-5)
        for choice in choices:
            own = theirs.logprobs(beams.prompt, choice.tokens)
            assert choice.cumulative_logprob == pytest.approx(sum(own), rel=1e-4)


def test_log_probabilities_of_each_token_are_the_models_own(
    theirs: Reference, make_engine: MakeEngine
) -> None:
    search = Search(4, stops=SOME)
    expected = theirs.beams(search, 8)
    found = serve(make_engine(tokens=256), specs(expected, search, logprobs=3, repetition_penalty=1.0))
    check(found, expected, search)
    for number, beams in enumerate(expected):
        for choice in found[str(number)]:
            assert choice.logprobs is not None
            assert [detail.token for detail in choice.logprobs] == choice.tokens
            own = theirs.logprobs(beams.prompt, choice.tokens)
            assert [detail.logprob for detail in choice.logprobs] == pytest.approx(own, abs=2e-5)
            assert all(len(detail.top) == 3 for detail in choice.logprobs)
            assert all(detail.top[0][1] >= detail.logprob for detail in choice.logprobs)


def test_beams_keep_to_what_is_allowed_and_scores_come_of_a_prompt(make_engine: MakeEngine) -> None:
    params = Search(4, stops=()).params(n=4, allowed_token_ids=(5, 9, 11), prompt_logprobs=1)
    found = serve(make_engine(), [RequestSpec(id="r", prompt=[1, 2, 3], params=params, seed=0)])["r"]
    assert {token for choice in found for token in choice.tokens} <= {5, 9, 11}
    assert len({tuple(choice.tokens) for choice in found}) == 4
    told = [choice.prompt_logprobs for choice in found if choice.prompt_logprobs is not None]
    assert [[score.token for score in scores] for scores in told] == [[2, 3]]


def test_where_too_few_texts_are_allowed_the_request_is_told_so(make_engine: MakeEngine) -> None:
    """One token alone makes one text, and the other choices cannot be anything."""
    engine = make_engine()
    for n in (1, 2):
        params = Search(2, stops=()).params(n=n, allowed_token_ids=(5,))
        engine.add(RequestSpec(id=str(n), prompt=[1, 2, 3], params=params, seed=0))
    deltas: list[Delta] = []
    while engine.busy:
        deltas += engine.step()
    (one,) = [delta for delta in deltas if delta.request_id == "1"]
    assert one.tokens == [5] * 24
    (two,) = [delta for delta in deltas if delta.request_id == "2"]
    assert two.error == "n=2 choices were asked for, but what the request allows leaves only 1"
    assert engine.scheduler.kv.free == engine.scheduler.kv.capacity
