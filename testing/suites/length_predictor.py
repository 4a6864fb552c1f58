"""The conformance suite of length predictors."""

from __future__ import annotations

import math

from turnout.core.interfaces.scheduling import LengthPredictor
from turnout.core.types.request import Request, RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.schedulers.sjf import Sjf
from turnout.testing.checks.brute_force import assert_expected_tokens
from turnout.testing.checks.memory_leaks import (
    assert_all_memory_is_free,
    assert_requests_are_forgotten,
    requests_served,
)
from turnout.testing.suites.embedded import GREEDY
from turnout.testing.suites.suite import Suite, slow
from turnout.testing.toy.decodings import ToyParallel
from turnout.testing.toy.engine import drive, toy_engine
from turnout.testing.toy.runner import toy_kv
from turnout.testing.toy.workloads import RandomCase

__all__ = ["LengthPredictorSuite"]


class LengthPredictorSuite(Suite[LengthPredictor]):
    """A prediction is a number of tokens, and predicting changes nothing."""

    kind = "length_predictor"
    light = True

    def test_a_prediction_is_a_number_of_tokens(self) -> None:
        predictor = self.make()
        for number in range(300):
            request = _request(number)
            guess = predictor.predict(request.view)
            assert isinstance(guess, int | float), (
                f"`predict` returned {guess!r}; expected a number of tokens"
            )
            assert math.isfinite(guess) and guess >= 0, (
                f"`predict` returned {guess}; expected a finite number of at least 0, for request "
                f"{request.id}"
            )
            request.output_tokens = 1 + number % 50
            predictor.observe(request.view)

    def test_predicting_has_no_side_effect(self) -> None:
        predictor = self.make()
        for number in range(40):
            predictor.observe(_request(number, ended=True).view)
        requests = [_request(number) for number in range(40)]
        first = [predictor.predict(request.view) for request in requests]
        again = [predictor.predict(request.view) for request in reversed(requests)]
        assert first == again[::-1], (
            "`predict` returned other values for the same requests the second time; only `observe` may "
            "change them"
        )

    def test_the_same_past_gives_the_same_predictions(self) -> None:
        assert self._predictions() == self._predictions(), (
            "two predictors that observed the same requests predict differently; expected the same"
        )

    def test_a_scheduler_can_use_it(self) -> None:
        for seed in range(self.trials):
            trial = RandomCase.draw(seed)
            engine = trial.engine(Sjf(), self.make())
            outcome = drive(engine, trial.arrivals)
            for _, spec in trial.arrivals:
                assert_expected_tokens(spec, outcome, case=f"seed {seed}, scheduled by `sjf`")
            faults = engine.scheduler.predictions.faults
            assert not faults, (
                f"seed {seed}: {faults} calls of `predict` raised, or returned something else than a "
                "number of tokens; "
                "see the log"
            )
            assert_all_memory_is_free(trial.kv)

    def test_requests_that_ended_are_forgotten(self) -> None:
        predictor = self.make()
        alive = requests_served(lambda: toy_engine(Sjf(), toy_kv(64, 4), predictor=predictor))
        assert_requests_are_forgotten(alive)

    @slow
    def test_answers_of_a_real_model_are_the_same_with_it(self) -> None:
        embedded = self.embedded()
        found = embedded.unmoved(GREEDY, scheduler="sjf", length_predictor=self.spec)
        assert found == embedded.tokens(GREEDY), "requests got other tokens than when served by `fcfs`"

    def _predictions(self) -> list[float]:
        predictor, guesses = self.make(), []
        for number in range(200):
            guesses.append(float(predictor.predict(_request(number).view)))
            predictor.observe(_request(number, ended=True).view)
        return guesses


def _request(number: int, *, ended: bool = False) -> Request:
    params = SamplingParams(n=1 + number % 3, max_tokens=5 + number % 60, stop=("parallel",))
    prompt, client = [1] * (1 + number * 7 % 90), f"client{number % 4}"
    spec = RequestSpec(id=f"r{number}", prompt=prompt, params=params, seed=number, client=client)
    request = Request(spec, ToyParallel(), float(number), len(spec.prompt) + 5 + number % 60, frozenset())
    request.output_tokens = (1 + number * 13 % 40) if ended else 0
    return request
