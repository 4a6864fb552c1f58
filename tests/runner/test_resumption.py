"""What an engine had begun, another one ends with the same tokens."""

from __future__ import annotations

import msgspec
import pytest
from driving import drain
from test_seeded_sampling import requests

from turnout.core.types.request import RequestSpec, Resumption


def begin(engine, specs: list[RequestSpec], steps: int) -> dict[str, dict[int, list[int]]]:
    """Output so far by request and choice, when the engine is lost."""
    outputs: dict[str, dict[int, list[int]]] = {spec.id: {} for spec in specs}
    for spec in specs:
        engine.add(spec)
    for _ in range(steps):
        for delta in engine.step():
            outputs[delta.request_id].setdefault(delta.index, []).extend(delta.tokens)
    return outputs


@pytest.mark.parametrize(
    ("n", "steps"),
    [
        pytest.param(n, steps, marks=[] if (n, steps) in ((1, 1), (3, 7), (3, 30)) else pytest.mark.slow)
        for n in (1, 3)
        for steps in (1, 2, 7, 30)
    ],
)
def test_the_tokens_are_those_of_an_engine_that_lives(make_engine, n, steps):
    specs = requests(n)
    whole = begin(make_engine(), specs, 100)
    assert all(len(output) == 40 for choices in whole.values() for output in choices.values())

    outputs = begin(make_engine(max_num_batched_tokens=64, max_num_seqs=12), specs, steps)
    other = make_engine(kv="contiguous")
    for spec in specs:
        left = [(i, output) for i, output in sorted(outputs[spec.id].items()) if len(output) < 40]
        if left or not outputs[spec.id]:
            other.add(msgspec.structs.replace(spec, resume=Resumption(choices=left)))
    for delta in drain(other):
        outputs[delta.request_id].setdefault(delta.index, []).extend(delta.tokens)
    assert outputs == whole


def test_choices_without_tokens_begin_beside_those_that_go_on(make_engine):
    specs = requests(3)
    whole = begin(make_engine(), specs, 100)
    other = make_engine()
    for spec in specs:
        given = [(0, []), (1, whole[spec.id][1][:7]), (2, [])]
        other.add(msgspec.structs.replace(spec, resume=Resumption(choices=given)))
    outputs = {spec.id: {0: [], 1: whole[spec.id][1][:7], 2: []} for spec in specs}
    for delta in drain(other):
        outputs[delta.request_id][delta.index].extend(delta.tokens)
    assert outputs == whole


def test_it_is_not_turned_away_and_keeps_its_history(make_engine):
    engine = make_engine(max_waiting=1)
    specs = requests()
    resume = Resumption(choices=[(0, [5, 6])], cached_tokens=3, first_token=1.5, interrupted=[2.0])
    for spec in specs[:4]:
        engine.add(msgspec.structs.replace(spec, resume=resume, arrival=1.0, timing=True))
    last = [delta for delta in drain(engine) if delta.finish_reason]
    assert len(last) == 4
    for delta in last:
        assert delta.cached_tokens == 3 and delta.timing is not None
        assert (delta.timing.first_token, delta.timing.preempted[0]) == (1.5, 2.0)
