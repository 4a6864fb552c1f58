"""The conformance suite of proposers."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import msgspec

from turnout.core.interfaces.decoding import Decoding
from turnout.core.interfaces.proposer import DraftRequest, Proposal, Proposer
from turnout.core.interfaces.resources import Resources
from turnout.core.registry.spec import PluginSpec
from turnout.core.types.request import Request, RequestSpec
from turnout.core.types.request import Sequence as TokenSequence
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.decoding.greedy import Greedy
from turnout.plugins.decoding.sampling import Sampling
from turnout.plugins.decoding.speculation.strategy import Speculative
from turnout.testing.checks.decoding_harness import decoding_engine, request, run, tokens_of
from turnout.testing.checks.messages import shown
from turnout.testing.suites.suite import Suite, slow
from turnout.testing.toy.model import VOCABULARY
from turnout.testing.toy.resources import ToyResources

__all__ = ["ProposerSuite"]

PARAMS = (
    SamplingParams(temperature=0),
    SamplingParams(),
    SamplingParams(temperature=0.6, top_k=3, n=2),
    SamplingParams(temperature=0, repetition_penalty=1.4),
)


class ProposerSuite(Suite[Proposer]):
    """Drafts are what was asked for, and change no answer."""

    kind = "proposer"
    trials: ClassVar[int] = 12
    """Requests that are served together."""

    def test_answers_are_the_same_without_it(self) -> None:
        """Greedy and for any seed; also where memory and budget are so scarce that requests are preempted."""
        for params in PARAMS:
            specs = self._requests(params)
            plain = run(decoding_engine([Greedy(), Sampling()]), specs)
            machines: list[dict[str, Any]] = [{}, {"blocks": 24, "budget": 24, "slots": 12}]
            for machine in machines:
                found = run(decoding_engine([self._speculative()], **machine), specs)
                assert tokens_of(found) == tokens_of(plain), (
                    f"requests got other tokens than without drafts; expected the same: {shown(params)}"
                )

    def test_drafts_are_for_the_requested_sequences(self) -> None:
        """Each for a sequence that was asked for, once; no longer than that; tokens of the vocabulary."""
        seen = _Checked(self.make())
        for params in PARAMS:
            run(decoding_engine([self._speculative(seen)]), self._requests(params))
        assert seen.requests, "`propose` was never called with a request"

    def test_the_same_past_gives_the_same_drafts(self) -> None:
        first, again = self._drafts(), self._drafts()
        assert first == again, "two proposers with the same past gave other drafts; expected the same"

    def test_ended_sequences_are_forgotten(self) -> None:
        proposer = self._started()
        sequences = [_sequence(number) for number in range(20)]
        list(proposer.propose([DraftRequest(sequence, 3, False) for sequence in sequences]))
        proposer.forget(sequences)
        proposer.forget([_sequence(99)])  # not seen before
        gone = [weakref.ref(sequence) for sequence in sequences]
        del sequences
        gc.collect()
        assert not any(reference() for reference in gone), (
            "the proposer still refers to sequences after `forget`; drop all that it keeps of them there"
        )

    def test_cost_and_backlog_are_not_negative(self) -> None:
        proposer = self._started()
        assert proposer.cost >= 0, f"`cost` is {proposer.cost}; expected at least 0"
        backlog = proposer.backlog(_sequence(0))
        assert backlog >= 0, f"`backlog` returned {backlog}; expected at least 0 tokens"

    @slow
    def test_answers_of_a_real_model_are_the_same_without_it(self) -> None:
        embedded = self.embedded()
        decoding = str(PluginSpec("speculative", {"proposer": self.spec, "k": "3"}))
        for params in PARAMS:
            found = embedded.unmoved(params, decoding=decoding)
            assert found == embedded.tokens(params), (
                f"requests got other tokens than without drafts; expected the same: {shown(params)}"
            )

    # -------------------------------------------------------------- details

    def _started(self) -> Proposer:
        proposer = self.make()
        proposer.start(ToyResources())
        return proposer

    def _speculative(self, proposer: Proposer | None = None) -> Decoding:
        return Speculative(proposer=proposer or self.make(), k=4, adaptive=False)

    def _requests(self, params: SamplingParams) -> list[RequestSpec]:
        longer = msgspec.structs.replace(params, max_tokens=12, ignore_eos=True)
        return [request(f"r{seed}", longer, seed) for seed in range(self.trials)]

    def _drafts(self) -> list[list[int]]:
        proposer, found = self._started(), []
        for length in range(8, 20):
            sequence = _sequence(3)
            sequence.tokens += [1, 2, 3] * (length - 8)
            found += [p.tokens for p in proposer.propose([DraftRequest(sequence, 4, False)])]
        return found


class _Checked(Proposer):
    """Passes every call on to `proposer`, and checks the answers."""

    def __init__(self, proposer: Proposer) -> None:
        self.proposer = proposer
        self.requests = 0

    def start(self, resources: Resources) -> None:
        self.proposer.start(resources)

    @property
    def cost(self) -> float:
        return self.proposer.cost

    def backlog(self, sequence: TokenSequence) -> int:
        return self.proposer.backlog(sequence)

    def forget(self, sequences: Iterable[TokenSequence]) -> None:
        self.proposer.forget(sequences)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        self.requests += len(requests)
        wanted = {request.sequence: request for request in requests}
        before = {sequence: list(sequence.tokens) for sequence in wanted}
        proposals = list(self.proposer.propose(requests))
        for sequence, tokens, probabilities in proposals:
            request = wanted.pop(sequence, None)
            assert request is not None, (
                f"`propose` drafted twice for a sequence, or for one that was not asked for: {sequence}"
            )
            assert len(tokens) <= request.tokens, (
                f"`propose` drafted {len(tokens)} tokens; expected at most {request.tokens} as asked"
            )
            assert all(0 <= token < VOCABULARY for token in tokens), (
                f"`propose` drafted {tokens}; expected tokens from 0 to {VOCABULARY - 1}"
            )
            if probabilities is not None:
                assert probabilities.shape == (len(tokens), VOCABULARY), (
                    f"`propose` gave probabilities of shape {list(probabilities.shape)}; expected "
                    f"{[len(tokens), VOCABULARY]}"
                )
                assert (probabilities.sum(-1) - 1).abs().max() < 1e-4, (
                    "`propose` gave probabilities that do not add up to 1 in each row"
                )
                assert (probabilities >= 0).all(), "`propose` gave probabilities below 0"
        assert all(sequence.tokens == tokens for sequence, tokens in before.items()), (
            "`propose` changed the tokens of a sequence; it must only read them"
        )
        return proposals


def _sequence(seed: int) -> TokenSequence:
    spec = request(f"s{seed}", SamplingParams(temperature=0), seed)
    return Request(spec, Greedy(), 0.0, 100, frozenset()).live[0]
