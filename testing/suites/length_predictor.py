"""What every length predictor must keep to."""

from __future__ import annotations

import math

from turnout.core.interfaces.scheduling import LengthPredictor
from turnout.core.types.request import Request, RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.schedulers.sjf import Sjf
from turnout.testing.checks.brute_force import expected
from turnout.testing.checks.memory_leaks import assert_all_memory_is_free
from turnout.testing.suites.embedded import GREEDY
from turnout.testing.suites.suite import Suite, shown, slow
from turnout.testing.toy.decodings import ToyParallel
from turnout.testing.toy.engine import drive
from turnout.testing.toy.workloads import RandomCase

__all__ = ["LengthPredictorSuite"]


class LengthPredictorSuite(Suite[LengthPredictor]):
    """A guess is a number of tokens, and guessing changes nothing."""

    kind = "length_predictor"
    light = True

    def test_a_guess_is_a_number_of_tokens(self) -> None:
        predictor = self.make()
        for number in range(300):
            request = _request(number)
            guess = predictor.predict(request.view)
            assert isinstance(guess, int | float), f"predicted {guess!r}"
            assert math.isfinite(guess) and guess >= 0, f"predicted {guess} tokens for {request}"
            request.output_tokens = 1 + number % 50
            predictor.observe(request.view)

    def test_a_guess_has_no_side_effect(self) -> None:
        predictor = self.make()
        for number in range(40):
            predictor.observe(_request(number, ended=True).view)
        requests = [_request(number) for number in range(40)]
        first = [predictor.predict(request.view) for request in requests]
        again = [predictor.predict(request.view) for request in reversed(requests)]
        assert first == again[::-1], "the same requests were guessed differently the second time"

    def test_the_same_past_gives_the_same_guesses(self) -> None:
        assert self._guesses() == self._guesses(), "two predictors of the same past differ"

    def test_schedulers_can_go_by_it(self) -> None:
        for seed in range(self.trials):
            trial = RandomCase.draw(seed)
            engine = trial.engine(Sjf(), self.make())
            outcome = drive(engine, trial.arrivals)
            for _, spec in trial.arrivals:
                assert outcome.outputs(spec.id) == expected(spec), f"wrong tokens for {shown(spec)}"
            faults = engine.scheduler.predictions.faults
            assert not faults, f"{faults} guesses were no use, or raised: see the log"
            assert_all_memory_is_free(trial.kv)

    @slow
    def test_a_real_models_answers_are_the_same_by_it(self) -> None:
        embedded = self.embedded()
        found = embedded.unmoved(GREEDY, scheduler="sjf", length_predictor=self.spec)
        assert found == embedded.tokens(GREEDY), "other tokens than when served in order of arrival"

    def _guesses(self) -> list[float]:
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
