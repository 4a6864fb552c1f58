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

from turnout.core.engine import Engine
from turnout.core.messages import Delta
from turnout.core.request import RequestSpec

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
ONE_OF_EACH_WIDTH = (SEARCHES[1], SEARCHES[14], SEARCHES[20])


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


@pytest.mark.parametrize("search", SEARCHES, ids=str)
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
    assert (engine.stats().parkings > 0) == (preemption == "swap")
