"""`history`: the quantile of what it saw, of those most alike first, in bounded memory."""

from __future__ import annotations

import random
from math import ceil
from statistics import median

import pytest
from toy import ToyGreedy
from traces import Machine, job, serve

from turnout.core.errors import ConfigError
from turnout.core.registry.registry import Registry
from turnout.core.types.request import Request, RequestSpec, RequestView
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.predictors.history import History
from turnout.plugins.schedulers.fcfs import Fcfs


def view(
    client: str = "a", prompt: int = 10, output: int = 0, *, most: int = 10_000, n: int = 1
) -> RequestView:
    params = SamplingParams(n=n, max_tokens=most)
    spec = RequestSpec(id="r", prompt=[1] * prompt, params=params, seed=0, client=client)
    request = Request(spec, ToyGreedy(), 0.0, prompt + most, frozenset())
    request.width, request.output_tokens = n, output
    return request.view


def fed(history: History, *seen: RequestView) -> History:
    for request in seen:
        history.observe(request)
    return history


def test_the_prediction_is_the_quantile_of_the_latest_samples():
    rng = random.Random(0)
    for trial in range(100):
        quantile, samples = rng.choice([0.1, 0.5, 0.9, 1.0]), rng.randrange(1, 20)
        least = rng.randrange(1, samples + 1)
        history, seen = History(quantile, least, samples), []
        for _ in range(rng.randrange(40)):
            seen.append(rng.randrange(1, 30))
            history.observe(view(output=seen[-1]))
            latest = sorted(seen[-samples:])
            right = latest[ceil(quantile * len(latest)) - 1] if len(latest) >= least else 10_000
            assert history.predict(view()) == right, trial


def test_it_converges_to_the_median_and_follows_a_change():
    rng = random.Random(1)
    history = History()
    for centre in (4.0, 6.0):
        lengths = [round(rng.lognormvariate(centre, 0.5)) for _ in range(1001)]
        fed(history, *(view(output=length) for length in lengths))
        assert history.predict(view()) == pytest.approx(median(lengths), rel=0.25)


def test_with_too_few_samples_it_asks_the_bucket_then_all_clients_then_max_tokens():
    history = History(min_samples=2)
    assert history.predict(view(most=77)) == 77
    fed(history, view("b", 500, 40), view("c", 700, 40))
    assert history.predict(view("a", 10)) == 40, "everybody's"
    fed(history, view("b", 8, 5), view("c", 15, 5))
    assert history.predict(view("a", 10)) == 5, "the bucket's, 8 to 15 tokens of prompt"
    assert history.predict(view("a", 16)) in (5, 40), "not that bucket's"
    fed(history, view("a", 9, 9))
    assert history.predict(view("a", 10)) == 5
    fed(history, view("a", 9, 9))
    assert history.predict(view("a", 10)) == 9, "its own"
    assert history.predict(view("b", 10)) == 5


def test_a_prediction_is_for_all_choices_and_between_what_is_out_and_what_may_be():
    history = fed(History(min_samples=1), view(output=90, n=3))
    assert history.predict(view()) == 30
    assert history.predict(view(n=4)) == 120
    assert history.predict(view(n=4, most=20)) == 80
    assert history.predict(view(output=50)) == 50
    assert history.predict(view(output=50, most=50)) == 50


def test_its_memory_is_bounded_and_the_least_recent_clients_go_first():
    history = History(min_samples=1, samples=4, keys=10)
    for number in range(500):
        history.observe(view("faithful", 10, 7))
        history.observe(view(f"c{number}", 1 + number, number))
    assert len(history._of_client) == 10 and ("faithful", "", 4) in history._of_client
    assert len(history._of_bucket) <= 10
    rings = [*history._of_client.values(), *history._of_bucket.values(), history._of_all]
    assert all(len(ring._latest) == len(ring._sorted) <= 4 for ring in rings)
    assert history.predict(view("faithful", 10)) == 7


def test_predicting_changes_nothing_and_equal_histories_predict_alike():
    rng = random.Random(2)
    asked, silent = History(keys=5), History(keys=5)
    for _ in range(500):
        seen = view(rng.choice("abcdefgh"), rng.randrange(1, 300), rng.randrange(1, 99))
        asked.predict(view(rng.choice("abcdefgh"), rng.randrange(1, 300)))
        asked.observe(seen)
        silent.observe(seen)
    probes = [view(client, 1 << bucket) for client in "abcdefgh" for bucket in range(9)]
    assert [asked.predict(probe) for probe in probes] == [silent.predict(probe) for probe in probes]


def test_the_engine_teaches_it():
    history = History(min_samples=3)
    serve(Fcfs(), [job(f"r{i}", 0.0, 3, 9, exact=True) for i in range(3)], Machine(predictor=history))
    assert history.predict(view("", 3)) == 9


@pytest.mark.parametrize("options", ["quantile=0", "quantile=1.5", "min_samples=0", "samples=3", "keys=0"])
def test_options_out_of_range_are_refused_by_name(options):
    with pytest.raises(ConfigError, match=options.partition("=")[0]):
        Registry.load().create("length_predictor", f"history:{options}")
