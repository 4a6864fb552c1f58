"""A request that another engine had begun goes on where it was: no token is lost, repeated or changed."""

from __future__ import annotations

import msgspec
import pytest
from toy import ToyGreedy, drive, expected, toy_engine, toy_kv, toy_request

from turnout.core.engine.engine import Engine
from turnout.core.types.request import Request, RequestSpec, Resumption
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.schedulers.fcfs import Fcfs


def engine(**options: int) -> Engine:
    return toy_engine(Fcfs(), toy_kv(64, 4), **options)


@pytest.mark.parametrize("strategy", ["greedy", "lookup"])
@pytest.mark.parametrize("done", [1, 5, 11])
def test_the_rest_follows_what_was_said(strategy: str, done: int) -> None:
    request = toy_request("r", [1, 2, 3, 4, 5], strategy, 12)
    (whole,) = expected(request)
    said = whole[:done]
    resumed = msgspec.structs.replace(request, resume=Resumption(choices=[(0, said)]))
    assert said + drive(engine(), [(0, resumed)]).tokens["r"][0] == whole


def test_choices_that_are_left_keep_their_numbers() -> None:
    """The second of three had ended before the engine did."""
    request = toy_request("r", [1, 2, 3, 4, 5], "parallel", 12, n=3)
    whole = drive(engine(), [(0, request)]).tokens["r"]
    left = Resumption(choices=[(0, whole[0][:3]), (2, whole[2][:4])])
    rest = drive(engine(), [(0, msgspec.structs.replace(request, resume=left))]).tokens["r"]
    assert rest == {0: whole[0][3:], 2: whole[2][4:]}


def test_one_that_had_said_nothing_begins_anew() -> None:
    request = toy_request("r", [1, 2, 3], "greedy", 8)
    resumed = msgspec.structs.replace(request, resume=Resumption(choices=[]))
    assert drive(engine(), [(0, resumed)]).outputs("r") == expected(request)


def test_it_was_admitted_already_and_is_not_turned_away() -> None:
    full = engine(waiting=1)
    full.add(toy_request("waits", [1, 2, 3], "greedy", 3))
    request = toy_request("r", [1, 2, 3], "greedy", 3)
    full.add(msgspec.structs.replace(request, resume=Resumption(choices=[])))
    assert full.stats().waiting == 2


def test_scores_of_the_prompt_were_told_already() -> None:
    """So what is cached of it need not be computed again; begun anew, all of it is still to be told."""
    params = SamplingParams(max_tokens=5, stop=("greedy",), prompt_logprobs=0)
    request = RequestSpec(id="r", prompt=[1, 2, 3, 4, 5], params=params, seed=0)
    for choices, unscored in (([(0, [6, 7])], range(0)), ([], range(4))):
        spec = msgspec.structs.replace(request, resume=Resumption(choices=choices))
        assert Request(spec, ToyGreedy(), 0.0, 10, frozenset()).unscored == unscored


def test_its_history_is_what_the_client_saw() -> None:
    resume = Resumption(choices=[(0, [5, 6])], cached_tokens=3, first_token=-7.0, interrupted=[-2.0])
    request = toy_request("r", [1, 2, 3, 4, 5], "greedy", 12)
    serving = engine()
    serving.add(msgspec.structs.replace(request, resume=resume, arrival=-9.0, timing=True))
    deltas = []
    while serving.busy:
        deltas += serving.step()
    timing = deltas[-1].timing
    assert timing is not None and deltas[-1].cached_tokens == 3
    assert (timing.arrival, timing.first_token, timing.preempted) == (-9.0, -7.0, [-2.0])
