"""The conformance suite of decoding strategies."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from turnout.core.engine.engine import Engine
from turnout.core.interfaces.compute import Runner
from turnout.core.interfaces.decoding import Decoding
from turnout.core.types.plan import Logits, Plan
from turnout.core.types.request import RequestSpec, Resumption
from turnout.core.types.request import Sequence as TokenSequence
from turnout.core.types.sampling_params import SamplingParams
from turnout.testing.checks.decoding_harness import PROMPT, decoding_engine, request, run, tokens_of
from turnout.testing.checks.distributions import assert_follows, probabilities
from turnout.testing.checks.messages import shown
from turnout.testing.suites.suite import Suite, not_for_it, slow
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
"""Usual sampling parameters; those that a strategy accepts are tried."""


class DecodingSuite(Suite[Decoding]):
    """Answers are complete, depend on the seed alone, and follow the model's distribution."""

    kind = "decoding"
    trials: ClassVar[int] = 12
    """Requests that are served together."""

    params: ClassVar[Sequence[SamplingParams]] = CATALOGUE
    """Sampling parameters; those that the strategy accepts are tried."""
    same_as: ClassVar[tuple[str, ...]] = ()
    """Strategies that give the same tokens for each seed, such as ``("greedy", "sampling")``."""
    unbiased: ClassVar[bool] = True
    """Tokens of requests with a temperature above 0 are drawn from the model's distribution."""
    draws: ClassVar[int] = 1500
    """Answers that are drawn to test `unbiased`."""

    # -------------------------------------------------------------- complete answers

    def test_every_choice_is_complete(self) -> None:
        for params in self._accepted():
            for name, choices in run(self._engine(), self._requests(params)).items():
                assert sorted(choices) == list(range(params.n)), (
                    f"request {name} has the choices {sorted(choices)}; expected {params.n}: {shown(params)}"
                )
                for answer in choices.values():
                    self._check_complete(answer.tokens, answer.reason)

    def test_answers_do_not_depend_on_what_else_is_served(self) -> None:
        """Alone, together, in small chunks, and where memory is so scarce that requests are preempted."""
        for params in self._accepted():
            specs = self._requests(params)
            together = tokens_of(run(self._engine(), specs))
            alone = {k: v for spec in specs[:4] for k, v in tokens_of(run(self._engine(), [spec])).items()}
            assert alone.items() <= together.items(), (
                "requests got other tokens alone than together with others; expected the same: "
                f"{shown(params)}"
            )
            short = self._engine(blocks=6 * _width(self.make(), params) + 8, budget=24, slots=12)
            assert tokens_of(run(short, specs)) == together, (
                "requests got other tokens where memory is so scarce that they are preempted; expected the "
                f"same: {shown(params)}"
            )

    def test_answers_are_the_same_when_steps_overlap(self) -> None:
        """As on a GPU, where a step starts before the tokens of the previous step are known."""
        for params in self._accepted():
            specs = self._requests(msgspec.structs.replace(params, logprobs=1))
            for short in (False, True):
                machine = {"blocks": 6 * _width(self.make(), params) + 8, "budget": 24} if short else {}
                found = run(self._engine(overlaps=True, **machine), specs)
                assert found == run(self._engine(**machine), specs), (
                    "requests got other answers where a step starts before the previous step's tokens are "
                    f"known; expected the same: {shown(params)}"
                )

    def test_the_same_seed_gives_the_same_answer(self) -> None:
        for params in self._accepted():
            specs = self._requests(params)
            first, again = (tokens_of(run(self._engine(), specs)) for _ in range(2))
            assert first == again, f"two runs with the same seeds gave other tokens: {shown(params)}"

    def test_requests_resume_from_their_tokens(self) -> None:
        """Answers are cut, and another engine, with another object of the strategy, goes on from there."""
        strategy = self.make()
        if not (strategy.resumes and strategy.streams):
            not_for_it("the strategy does not claim it (`resumes`), or clients see nothing before the end")
        for params in self._accepted():
            for spec in self._requests(params)[:4]:
                whole = tokens_of(run(self._engine(), [spec]))
                for length in (1, 3, 6):
                    self._check_resumes(spec, whole, length)

    # -------------------------------------------------------------- right answers

    def test_tokens_equal_those_of_the_claimed_strategies(self) -> None:
        if not self.same_as:
            not_for_it("the strategy does not claim the tokens of other strategies (`same_as`)")
        for params in self._accepted():
            specs = self._requests(params)
            found = tokens_of(run(self._engine(), specs))
            others = [self.registry().create("decoding", name) for name in self.same_as]
            wanted = tokens_of(run(decoding_engine(others), specs))
            assert found == wanted, (
                f"requests got other tokens than from {' and '.join(self.same_as)} (`same_as`): "
                f"{shown(params)}"
            )

    def test_samples_follow_the_distribution_of_the_model(self) -> None:
        """Tests pairs of neighbouring tokens, which also shows drafts that are accepted too often."""
        sampled = [params for params in self._accepted() if params.sampled and params.n == 1]
        if not sampled or not self.unbiased:
            not_for_it(
                "the strategy serves no sampling, or does not claim the model's distribution (`unbiased`)"
            )
        for params in sampled:
            varied = msgspec.structs.replace(params, ignore_eos=True, max_tokens=3)
            specs = [request(str(seed), varied, seed) for seed in range(self.draws)]
            answers = [tuple(choices[0].tokens) for choices in run(self._engine(slots=256), specs).values()]
            for place in range(2):
                seen = [answer[place : place + 2] for answer in answers]
                assert_follows(
                    seen, _pairs(params)[place], f"{shown(params)}, tokens {place} and {place + 1}"
                )

    def test_logits_processors_are_obeyed(self) -> None:
        """A request that allows four tokens gets no other, not even in drafts and forks."""
        for params in self._accepted():
            varied = msgspec.structs.replace(params, allowed_token_ids=(1, 2, 3, 4))
            for choices in tokens_of(run(self._engine(), self._requests(varied))).values():
                assert set(choices) <= {1, 2, 3, 4}, (
                    f"a choice has the tokens {choices}, but the request allows 1, 2, 3 and 4; `decide` "
                    f"must choose from logits that `adjust` has processed: {shown(varied)}"
                )

    def test_log_probabilities_are_those_of_the_model(self) -> None:
        """A request that asks for them gets one for each token, of the raw logits at temperature 1."""
        for params in self._accepted():
            varied = msgspec.structs.replace(params, logprobs=2)
            for choices in run(self._engine(), self._requests(varied)[:4]).values():
                for answer in choices.values():
                    assert len(answer.details) == len(answer.tokens), (
                        f"{len(answer.tokens)} tokens came with {len(answer.details)} log-probabilities; "
                        f"expected one for each: {shown(varied)}"
                    )
                    context = list(PROMPT)
                    for token, detail in zip(answer.tokens, answer.details, strict=True):
                        wanted = log_softmax(toy_logits(context))[token]
                        assert detail.token == token, (
                            f"the token {token} came with log-probabilities for {detail.token}: "
                            f"{shown(varied)}"
                        )
                        assert abs(detail.logprob - wanted) < 1e-4, (
                            f"the log-probability of token {token} is {detail.logprob}; expected {wanted}, "
                            f"that of the raw logits: {shown(varied)}"
                        )
                        context.append(token)

    # -------------------------------------------------------------- contract

    def test_logits_are_not_changed(self) -> None:
        for params in self._accepted():
            engine = self._engine()
            engine.runner = runner = _Keeping(engine.runner)
            run(engine, self._requests(params))
            for after, before in runner.seen:
                assert after.equal(before), (
                    f"`decide` changed the logits in place; copy them first: {shown(params)}"
                )

    def test_ended_sequences_are_forgotten(self) -> None:
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
            assert not kept, (
                f"the strategy still refers to {kept} sequences that have ended; drop them in `forget`: "
                f"{shown(params)}"
            )

    def test_some_sampling_parameters_are_accepted(self) -> None:
        assert self._accepted(), (
            "`accepts` returned False for all parameters that were tried; set `params` to some that it "
            "accepts"
        )
        rows = self.make().rows
        assert rows >= 1, f"`rows` is {rows}; expected at least 1"

    @slow
    def test_answers_of_a_real_model_depend_on_the_seed_alone(self) -> None:
        """Alone, together and preempted; and the tokens of the strategies in `same_as`."""
        embedded = self.embedded()
        for params in self._accepted():
            found = embedded.unmoved(params, decoding=self.spec)
            for name in self.same_as:
                if self.registry().create("decoding", name).accepts(params):
                    assert found == embedded.tokens(params, decoding=name), (
                        f"requests got other tokens than from {name} (`same_as`): {shown(params)}"
                    )

    # -------------------------------------------------------------- details

    def _engine(self, **machine: Any) -> Engine:
        return decoding_engine([self.make()], **machine)

    def _accepted(self) -> list[SamplingParams]:
        strategy = self.make()
        return [params for params in self.params if strategy.accepts(params)]

    def _requests(self, params: SamplingParams) -> list[RequestSpec]:
        varied = msgspec.structs.replace(params, max_tokens=10)
        return [request(f"r{seed}", varied, seed) for seed in range(self.trials)]

    def _check_resumes(
        self, spec: RequestSpec, whole: Mapping[tuple[str, int], tuple[int, ...]], length: int
    ) -> None:
        begun = {index: tokens[:length] for (_, index), tokens in whole.items() if len(tokens) > length}
        if not begun:
            return
        resume = Resumption(choices=[(index, list(tokens)) for index, tokens in begun.items()])
        rest = tokens_of(run(self._engine(), [msgspec.structs.replace(spec, resume=resume)]))
        for index, tokens in begun.items():
            found = tokens + rest[spec.id, index]
            assert found == whole[spec.id, index], (
                f"choice {index}, resumed after {length} tokens, became {found}; expected "
                f"{whole[spec.id, index]}, as without a break, or `resumes = False`: {shown(spec.params)}"
            )

    def _check_complete(self, tokens: list[int], reason: str) -> None:
        assert tokens and all(0 <= token < VOCABULARY for token in tokens), (
            f"a choice has the tokens {tokens}; expected at least one, each from 0 to {VOCABULARY - 1}"
        )
        assert EOS not in tokens[:-1], f"a choice goes on after the end-of-sequence token {EOS}: {tokens}"
        wanted = "stop" if tokens[-1] == EOS else "length"
        assert reason == wanted, f"the choice {tokens} ended by {reason!r}; expected {wanted!r}"
        assert reason == "stop" or len(tokens) == 10, (
            f"the choice {tokens} ended by 'length' after {len(tokens)} tokens; expected max_tokens, 10"
        )


@dataclass
class _Keeping:
    """A runner that keeps a copy of the logits that it returned."""

    runner: Runner
    seen: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def run(self, plan: Plan) -> Logits:
        logits = self.runner.run(plan)
        self.seen.append((logits.values, logits.values.clone()))
        return logits


def _width(strategy: Decoding, params: SamplingParams) -> int:
    return strategy.width(params) * strategy.rows


def _pairs(params: SamplingParams) -> list[dict[tuple[int, ...], float]]:
    """Probabilities of the first and second token, and of the second and third."""
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
