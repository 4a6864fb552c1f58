"""Speculative decoding: a proposer drafts the next tokens, and the model verifies several in one step."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from turnout.core.errors import ConfigError
from turnout.core.interfaces.decoding import Decoding
from turnout.core.interfaces.figures import HasFigures
from turnout.core.interfaces.proposer import DraftRequest, Proposal, Proposer
from turnout.core.interfaces.resources import Resources
from turnout.core.plugin_faults import PluginFaults
from turnout.core.types.decision import Continuation
from turnout.core.types.plan import Logits
from turnout.core.types.request import Request
from turnout.core.types.request import Sequence as TokenSequence
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.decoding.greedy import Greedy
from turnout.plugins.decoding.sampling import Sampling
from turnout.plugins.decoding.speculation import checked_proposer
from turnout.plugins.decoding.speculation.draft_length import DraftLengthController
from turnout.plugins.defaults import MAX_DRAFT

if TYPE_CHECKING:
    from turnout.plugins.decoding.speculation.drafts import Draft

__all__ = ["COUNTERS", "Speculative"]

logger = logging.getLogger(__name__)

COUNTERS = ("spec_decode_num_drafts", "spec_decode_num_draft_tokens", "spec_decode_num_accepted_tokens")
Verify = Literal["auto", "exact", "rejection"]


class Speculative(Decoding):
    """Drafts several tokens and has the model verify them in one step; the answers stay the model's.

    Serves the requests that `greedy` and `sampling` serve.
    """

    wraps = True
    resumes = True

    def __init__(
        self,
        draft: Annotated[str | None, Field(description="Model that drafts; as `--spec-draft`.")] = None,
        ngram: Annotated[
            bool,
            Field(
                description="Draft what followed the latest tokens before; as `--spec-ngram`. So it does "
                "without any of `draft`, `ngram` and `proposer`."
            ),
        ] = False,
        proposer: Annotated[Proposer | None, Field(description="Another plugin that drafts.")] = None,
        k: Annotated[
            int, Field(ge=1, le=MAX_DRAFT, description="Most draft tokens for a step; as `--spec-tokens`.")
        ] = 5,
        verify: Annotated[
            Verify,
            Field(
                description="Which tokens are accepted: `exact`, those that would have been chosen anyway; "
                "`rejection`, more of a draft model's, with the same distribution but not a seed's tokens; "
                "`auto`: `exact` for requests that name a seed, else `rejection`."
            ),
        ] = "auto",
        adaptive: Annotated[bool, Field(description="Draft less, or not at all, where it is slower.")] = True,
    ) -> None:
        self._proposer = _proposer(draft, ngram, proposer)
        self._served = (Greedy(), Sampling())
        self._verify = verify
        self._lengths = DraftLengthController(k, adaptive=adaptive)
        self._proposals: dict[TokenSequence, Proposal] = {}
        """Proposals that are not verified yet."""
        self._drafts = self._drafted = self._accepted = 0
        self._proposer_faults = PluginFaults("proposer", logger)

    @property
    def rows(self) -> int:
        return self._lengths.max_length + 1

    def start(self, resources: Resources) -> None:
        self._vocab_size = resources.model.vocab_size
        self._proposer.start(resources)
        self._lengths.start(resources, self._proposer.cost)

    @property
    def parts(self) -> Iterable[tuple[str, HasFigures]]:
        return (("proposer", self._proposer),)

    def accepts(self, params: SamplingParams) -> bool:
        return any(decoding.accepts(params) for decoding in self._served)

    # -------------------------------------------------------------- drafting

    def draft(self, sequences: Sequence[TokenSequence]) -> Iterable[tuple[TokenSequence, list[int]]]:
        # A sequence that was not in the last step still has its draft. Choices that have not forked share a
        # sequence, and a draft for one of them is of no use to the others.
        ready = [s for s in sequences if not s.draft and _forked(s.request)]
        lengths = self._lengths.draft_lengths(ready, partial(checked_proposer.backlog, self._proposer))
        requests = [
            DraftRequest(sequence, length, self._by_rejection(sequence.request.params))
            for sequence, length in zip(ready, lengths, strict=True)
            if length
        ]
        for proposal in self._proposals_for(requests):
            self._proposals[proposal.sequence] = proposal
            yield proposal.sequence, proposal.tokens

    def _proposals_for(self, requests: Sequence[DraftRequest]) -> list[Proposal]:
        if not requests:
            return []
        behind = sum(checked_proposer.backlog(self._proposer, request.sequence) for request in requests)
        longest = max(request.tokens for request in requests)
        with self._lengths.measure_draft(len(requests), longest, typical=behind <= len(requests)):
            return checked_proposer.propose(self._proposer, requests, self._vocab_size)

    def _by_rejection(self, params: SamplingParams) -> bool:
        if params.greedy or self._verify == "exact":
            return False
        return self._verify == "rejection" or params.seed is None

    # -------------------------------------------------------------- verifying

    def decide(self, requests: Sequence[Request], logits: Logits) -> Iterable[Continuation]:
        from turnout.plugins.decoding.candidates import continue_each
        from turnout.sampling.choose import choose

        if any(sequence.draft for request in requests for sequence in request.live):
            return self._verified(requests, logits)
        self._lengths.count(sum(len(request.live) for request in requests))
        return continue_each(requests, logits, choose)

    def _verified(self, requests: Sequence[Request], logits: Logits) -> Iterator[Continuation]:
        from turnout.plugins.decoding.speculation.verification import verify

        drafts = [draft for request in requests for draft in self._drafts_of(request)]
        for draft, continuation in zip(
            drafts, verify(drafts, logits, self._report_probabilities), strict=True
        ):
            self._learn(draft, len(continuation.tokens) - 1)
            yield continuation

    def _report_probabilities(self) -> None:
        error = ValueError("gave probabilities that are not finite, or 0 for the token that it drafted")
        self._proposer_faults.report(self._proposer, "propose", error)

    def _drafts_of(self, request: Request) -> Iterator[Draft]:
        from turnout.plugins.decoding.speculation.drafts import Draft

        if not _forked(request):
            yield from (Draft(request.live[0], index) for index in range(request.width))
            return
        for sequence in request.live:
            proposal = self._proposals.pop(sequence, None)
            probabilities = None
            if proposal and sequence.draft and self._by_rejection(request.params):
                probabilities = proposal.probabilities
            yield Draft(sequence, sequence.index, tuple(sequence.draft), probabilities)

    def _learn(self, draft: Draft, accepted: int) -> None:
        drafted = len(draft.tokens)
        self._lengths.count(1 + drafted)
        if drafted:
            self._lengths.learn(draft.sequence, drafted, accepted)
        self._drafts += drafted > 0
        self._drafted += drafted
        self._accepted += accepted

    # -------------------------------------------------------------- bookkeeping

    def forget(self, sequences: Sequence[TokenSequence]) -> None:
        for sequence in sequences:
            self._proposals.pop(sequence, None)
        self._lengths.forget(sequences)
        self._proposer.forget(sequences)

    def counters(self) -> Mapping[str, float]:
        """The drafts that were verified, the tokens in them, and the tokens that were accepted."""
        return dict(zip(COUNTERS, (self._drafts, self._drafted, self._accepted), strict=True))


def _forked(request: Request) -> bool:
    """Whether each of the request's choices has a sequence of its own."""
    return request.forks > 0 or request.width == 1


def _proposer(draft: str | None, ngram: bool, proposer: Proposer | None) -> Proposer:
    given = {"draft": draft, "ngram": ngram or None, "proposer": proposer}
    names = [name for name, value in given.items() if value is not None]
    if len(names) > 1:
        raise ConfigError(f"{' and '.join(names)} are given, but only one can draft; choose one of them")
    if proposer is not None:
        return proposer
    if draft is not None:
        from turnout.plugins.proposers.draft_model import DraftModel

        return DraftModel(draft)
    from turnout.plugins.proposers.ngram import NGram

    return NGram()
