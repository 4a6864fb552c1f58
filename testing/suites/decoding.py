"""What every decoding strategy must keep to."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from turnout.core.engine.engine import Engine
from turnout.core.interfaces.decoding import Decoding
from turnout.core.interfaces.runner import Runner
from turnout.core.types.plan import Logits, Plan
from turnout.core.types.request import RequestSpec
from turnout.core.types.request import Sequence as TokenSequence
from turnout.core.types.sampling_params import SamplingParams
from turnout.testing.checks.decoding_harness import PROMPT, decoding_engine, request, run, tokens_of
from turnout.testing.checks.distributions import assert_follows, probabilities
from turnout.testing.suites.suite import Suite, shown, skip, slow
from turnout.testing.toy.model import EOS, VOCABULARY, log_softmax, toy_logits

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["DecodingSuite"]

CATALOGUE = (
    SamplingParams(temperature=0),
    SamplingParams(temperature=0, n=2),
    SamplingParams(),
    SamplingParams(n=3),
    SamplingParams(temperature=0.7, top_p=0.8),
    SamplingParams(top_k=3),
    SamplingParams(min_p=0.2, temperature=1.3),
    SamplingParams(use_beam_search=True, beam_width=3),
    SamplingParams(use_beam_search=True, n=3, length_penalty=0.6),
)
"""Of the usual parameters those that a strategy accepts are tried."""


class DecodingSuite(Suite[Decoding]):
    """Answers are whole, the same for a seed whatever else is served, and of the model's distribution."""

    kind = "decoding"
    trials: ClassVar[int] = 12
    """Requests that are served together."""

    params: ClassVar[Sequence[SamplingParams]] = CATALOGUE
    """To try, of those that it accepts."""
    same_as: ClassVar[tuple[str, ...]] = ()
    """Strategies whose tokens its own must equal, such as ``("greedy", "sampling")``, for each seed."""
    unbiased: ClassVar[bool] = True
    """Where it serves a temperature above 0, tokens are drawn from the model's distribution."""
    draws: ClassVar[int] = 1500
    """Answers to test that by."""

    # -------------------------------------------------------------- whole answers

    def test_every_choice_is_whole(self) -> None:
        for params in self._accepted():
            for name, choices in run(self._engine(), self._requests(params)).items():
                assert sorted(choices) == list(range(params.n)), (
                    f"{name} of {shown(params)} has choices {choices}"
                )
                for answer in choices.values():
                    self._check_whole(answer.tokens, answer.reason)

    def test_answers_do_not_depend_on_what_else_is_served(self) -> None:
        """Alone, together, in small chunks, and where memory is so short that requests are preempted."""
        for params in self._accepted():
            specs = self._requests(params)
            together = tokens_of(run(self._engine(), specs))
            alone = {k: v for spec in specs[:4] for k, v in tokens_of(run(self._engine(), [spec])).items()}
            assert alone.items() <= together.items(), f"{shown(params)}: other tokens alone than together"
            short = self._engine(blocks=6 * _width(self.make(), params) + 8, budget=24, slots=12)
            assert tokens_of(run(short, specs)) == together, (
                f"{shown(params)}: other tokens where memory is short"
            )

    def test_answers_are_the_same_where_steps_overlap(self) -> None:
        """As on a GPU, where a step begins before the tokens of the one before are known."""
        for params in self._accepted():
            specs = self._requests(msgspec.structs.replace(params, logprobs=1))
            for short in (False, True):
                machine = {"blocks": 6 * _width(self.make(), params) + 8, "budget": 24} if short else {}
                found = run(self._engine(overlaps=True, **machine), specs)
                assert found == run(self._engine(**machine), specs), (
                    f"{shown(params)}: other answers where a step begins before the last one is read"
                )

    def test_a_seed_says_it_all(self) -> None:
        for params in self._accepted():
            specs = self._requests(params)
            first, again = (tokens_of(run(self._engine(), specs)) for _ in range(2))
            assert first == again, f"{shown(params)}: two runs of the same seeds differ"

    # -------------------------------------------------------------- right answers

    def test_tokens_are_those_of_the_strategies_it_stands_in_for(self) -> None:
        if not self.same_as:
            skip("it is not said to give the tokens of other strategies (`same_as`)")
        for params in self._accepted():
            specs = self._requests(params)
            found = tokens_of(run(self._engine(), specs))
            others = [self.registry().create("decoding", name) for name in self.same_as]
            wanted = tokens_of(run(decoding_engine(others), specs))
            assert found == wanted, (
                f"{shown(params)}: other tokens than those of {' and '.join(self.same_as)}"
            )

    def test_samples_follow_the_models_distribution(self) -> None:
        """Pairs of neighbouring tokens, so that guesses which are accepted too often are noticed, too."""
        sampled = [params for params in self._accepted() if params.sampled and params.n == 1]
        if not sampled or not self.unbiased:
            skip("it does not say that it draws from the model's distribution (`unbiased`)")
        for params in sampled:
            wishes = msgspec.structs.replace(params, ignore_eos=True, max_tokens=3)
            specs = [request(str(seed), wishes, seed) for seed in range(self.draws)]
            answers = [tuple(choices[0].tokens) for choices in run(self._engine(slots=256), specs).values()]
            for place in range(2):
                seen = [answer[place : place + 2] for answer in answers]
                assert_follows(
                    seen, _pairs(params)[place], f"{shown(params)}, tokens {place} and {place + 1}"
                )

    def test_logits_processors_are_obeyed(self) -> None:
        """A request that allows three tokens gets no other, in drafts and forks too."""
        for params in self._accepted():
            wishes = msgspec.structs.replace(params, allowed_token_ids=(1, 2, 3, 4))
            for choices in tokens_of(run(self._engine(), self._requests(wishes))).values():
                assert set(choices) <= {1, 2, 3, 4}, f"{shown(wishes)}: got {choices}; choose by `adjust`"

    def test_log_probabilities_are_the_models(self) -> None:
        """Where they are asked for: one for each token, of the raw logits at temperature 1."""
        for params in self._accepted():
            wishes = msgspec.structs.replace(params, logprobs=2)
            for choices in run(self._engine(), self._requests(wishes)[:4]).values():
                for answer in choices.values():
                    assert len(answer.details) == len(answer.tokens), f"{shown(wishes)}: {answer}"
                    context = list(PROMPT)
                    for token, detail in zip(answer.tokens, answer.details, strict=True):
                        wanted = log_softmax(toy_logits(context))[token]
                        assert detail.token == token, f"{answer.tokens} came with details of {detail}"
                        assert abs(detail.logprob - wanted) < 1e-4, (
                            f"{shown(wishes)}: token {token} is told as {detail.logprob}, not {wanted}"
                        )
                        context.append(token)

    # -------------------------------------------------------------- manners

    def test_logits_are_left_as_they_are(self) -> None:
        for params in self._accepted():
            engine = self._engine()
            engine.runner = runner = _Keeping(engine.runner)
            run(engine, self._requests(params))
            for after, before in runner.seen:
                assert after.equal(before), f"{shown(params)}: decide changed the logits in place"

    def test_nothing_is_kept_of_what_has_ended(self) -> None:
        for params in self._accepted():
            strategy = self.make()
            engine, ended = decoding_engine([strategy]), list[weakref.ref[TokenSequence]]()
            for spec in self._requests(params):
                engine.add(spec)
            while engine.busy:
                ended += [weakref.ref(s) for r in engine.scheduler.queues.running for s in r.live]
                engine.step()
            del engine
            gc.collect()
            kept = sum(sequence() is not None for sequence in ended)
            assert not kept, f"{shown(params)}: the strategy still refers to {kept} sequences: see `forget`"

    def test_it_accepts_something(self) -> None:
        assert self._accepted(), "it accepts none of the usual parameters; say which it does in `params`"
        assert self.make().rows >= 1

    @slow
    def test_answers_of_a_real_model_depend_on_the_seed_alone(self) -> None:
        """Alone, together, and where requests are preempted; and on what strategies it stands in for."""
        embedded = self.embedded()
        for params in self._accepted():
            found = embedded.unmoved(params, decoding=self.spec)
            for name in self.same_as:
                if self.registry().create("decoding", name).accepts(params):
                    assert found == embedded.tokens(params, decoding=name), f"{shown(params)}: not as {name}"

    # -------------------------------------------------------------- details

    def _engine(self, **machine: Any) -> Engine:
        return decoding_engine([self.make()], **machine)

    def _accepted(self) -> list[SamplingParams]:
        strategy = self.make()
        return [params for params in self.params if strategy.accepts(params)]

    def _requests(self, params: SamplingParams) -> list[RequestSpec]:
        wishes = msgspec.structs.replace(params, max_tokens=10)
        return [request(f"r{seed}", wishes, seed) for seed in range(self.trials)]

    def _check_whole(self, tokens: list[int], reason: str) -> None:
        assert tokens and all(0 <= token < VOCABULARY for token in tokens), f"got {tokens}"
        assert EOS not in tokens[:-1], f"went on after the end of sequence: {tokens}"
        assert reason == ("stop" if tokens[-1] == EOS else "length"), f"{tokens} ended by {reason!r}"
        assert reason == "stop" or len(tokens) == 10, f"{tokens} ended early"


@dataclass
class _Keeping:
    """A runner that keeps a copy of what it gave."""

    runner: Runner
    seen: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def run(self, plan: Plan) -> Logits:
        logits = self.runner.run(plan)
        self.seen.append((logits.values, logits.values.clone()))
        return logits


def _width(strategy: Decoding, params: SamplingParams) -> int:
    return strategy.width(params) * strategy.rows


def _pairs(params: SamplingParams) -> list[dict[tuple[int, ...], float]]:
    """Probabilities of the first and second, and of the second and third token."""
    whole: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(3):
        whole = {
            (*tokens, token): probability * share
            for tokens, probability in whole.items()
            for token, share in enumerate(probabilities([*PROMPT, *tokens], params))
        }
    pairs: list[dict[tuple[int, ...], float]] = [{}, {}]
    for tokens, probability in whole.items():
        for counts, pair in zip(pairs, pairwise(tokens), strict=True):
            counts[pair] = counts.get(pair, 0.0) + probability
    return pairs
