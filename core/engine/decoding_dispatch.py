"""Dispatches requests to decoding strategies, and contains the faults of strategies."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from turnout.core.engine.apply_decisions import RowOwners
from turnout.core.engine.decision_checks import (
    are_tokens,
    check_completion,
    check_continuations,
    check_details,
    check_lineage,
    check_retry,
    check_tokens,
    goes_on,
    held_tokens,
)
from turnout.core.engine.figures import checked_number
from turnout.core.errors import RequestError, did_you_mean
from turnout.core.interfaces.decoding import Decoding
from turnout.core.logs import about
from turnout.core.plugin_faults import PluginFaults, at_most, plugin_errors
from turnout.core.types.decision import Chosen, Completion, Continuation, Retry, resolve_tokens
from turnout.core.types.logprobs import TokenLogprobs
from turnout.core.types.plan import Logits
from turnout.core.types.request import Request
from turnout.core.types.request import Sequence as TokenSequence
from turnout.core.types.sampling_params import SamplingParams

__all__ = ["Decision", "Decisions", "DecodingDispatch", "Read", "by_decoding"]

logger = logging.getLogger(__name__)

Decision = list[Continuation] | Completion | Retry
"""What to do with one request."""
Decisions = Mapping[Request, Decision | str]
"""For each request what to do with it, or a message that says why it cannot go on."""
Read = Sequence[tuple[int, TokenLogprobs | None] | str]
"""For each row the token and its details, or a message that says why it cannot be used."""

_OURS = "turnout."


class DecodingDispatch:
    """The decoding strategies of an engine: chooses one for each request, and calls and checks them."""

    def __init__(self, decodings: Sequence[Decoding], vocab_size: int, named: int = 1) -> None:
        """named: how many of them, from the first on, the configuration names."""
        self._decodings = tuple(decodings)
        """In the order in which they are asked whether they accept a request."""
        self._named = frozenset(self._decodings[:named])
        self._by_name: dict[str, Decoding] = {}
        """Those that a request may ask for by name, some of which no other request gets."""
        self._vocab_size = vocab_size
        self._drafting = {each for each in decodings if type(each).draft is not Decoding.draft}
        """Those that draft; without any, `draft` returns at once."""
        self._thorough = {each for each in decodings if not type(each).__module__.startswith(_OURS)}
        self._plugin_faults = PluginFaults("decoding", logger)

    @property
    def all(self) -> Iterable[Decoding]:
        """Every strategy, once."""
        return dict.fromkeys((*self._decodings, *self._by_name.values()))

    def offer(self, by_name: Mapping[str, Decoding]) -> None:
        """Lets requests ask for these strategies by name."""
        self._by_name = dict(by_name)

    def choose(self, params: SamplingParams) -> tuple[Decoding, int]:
        """Returns the strategy for these parameters, and the request's width.

        Raises RequestError if none accepts them, or if one that the configuration names fails: what it would
        have done with the request, no other strategy does.
        """
        fault = ""
        for decoding in self._candidates(params.decoding):
            asked = "accepts"
            try:
                if not decoding.accepts(params):
                    continue
                asked = "width"
                width = decoding.width(params)
                _check_width(decoding, params, width)
                return decoding, width
            except plugin_errors() as error:
                fault = self._plugin_faults.report(decoding, asked, error)
                if decoding in self._named:
                    break
        if fault:
            raise RequestError(fault)
        if params.decoding is not None:
            message = f"decoding {params.decoding!r} does not serve these sampling parameters"
            raise RequestError(message, "decoding")
        raise RequestError("no decoding strategy serves these sampling parameters")

    def _candidates(self, name: str | None) -> Sequence[Decoding]:
        """Returns the strategies to ask: that of the name, or all. Raises RequestError for unknown names."""
        if name is None:
            return self._decodings
        if name not in self._by_name:
            known = ", ".join(sorted(self._by_name)) or "none"
            close = did_you_mean(name[:40], self._by_name)
            message = f"no decoding strategy is called {name[:40]!r} here; known: {known}{close}"
            raise RequestError(message, "decoding")
        return (self._by_name[name],)

    @staticmethod
    def of(request: Request) -> Decoding:
        """The strategy that serves a request."""
        return request.decoding  # type: ignore[return-value]  # a Request knows it as a Strategy

    def draft(self, requests: Iterable[Request]) -> None:
        """Asks the strategies to draft for requests about to get logits. A fault costs the drafts alone."""
        if not self._drafting:
            return
        for decoding, group in by_decoding(requests).items():
            if decoding in self._drafting:
                self._draft(decoding, {s: None for request in group for s in request.live})

    def _draft(self, decoding: Decoding, sequences: Mapping[TokenSequence, None]) -> None:
        try:
            most = decoding.rows - 1  # memory is planned for no more rows of logits
            for sequence, draft_tokens in at_most(len(sequences), decoding.draft(list(sequences))):
                if sequence not in sequences:
                    raise ValueError(f"drafted for {sequence!r}, which it was not asked about")
                if len(draft_tokens) > most:
                    raise ValueError(f"drafted {len(draft_tokens)} tokens; `rows` allows {most}")
                draft_tokens = list(draft_tokens[: sequence.room - 1])
                check_tokens(draft_tokens, self._vocab_size)
                sequence.draft = draft_tokens
        except plugin_errors() as error:
            self._plugin_faults.report(decoding, "draft", error)

    # -------------------------------------------------------------- decisions

    def decide(self, decoding: Decoding, requests: Sequence[Request], logits: Logits) -> Decisions | Chosen:
        """Returns the decision for each of `requests`; asks one by one if the strategy fails at all of them.

        `Chosen` tokens are returned as they are, for the caller to resolve.
        """
        try:
            decisions = decoding.decide(requests, logits)
            if isinstance(decisions, Chosen):
                return decisions
            return self._checked(decoding, requests, decisions)
        except plugin_errors() as error:
            return self._one_by_one(decoding, requests, logits, error)

    def resolve_decisions(
        self, decoding: Decoding, requests: Sequence[Request], chosen: Chosen, logits: Logits
    ) -> Decisions:
        """Waits for the chosen tokens, and returns what `decide` returns."""
        try:
            return self._checked(decoding, requests, chosen)
        except plugin_errors() as error:
            return self._one_by_one(decoding, requests, logits, error)

    def _one_by_one(
        self, decoding: Decoding, requests: Sequence[Request], logits: Logits, error: BaseException
    ) -> Decisions:
        """Asks about each request again, alone: only those end at which the strategy fails again."""
        message = self._plugin_faults.report(decoding, "decide", error)
        if len(requests) == 1:
            return {requests[0]: message}
        found: dict[Request, Decision | str] = {}
        for request in requests:
            try:
                found |= self._checked(decoding, [request], decoding.decide([request], logits))
            except plugin_errors() as again:
                found[request] = self._fault_of(request, decoding, again)
        return found

    def _checked(
        self,
        decoding: Decoding,
        requests: Sequence[Request],
        decisions: Iterable[Continuation | Completion | Retry],
    ) -> Decisions:
        """Groups decisions by request, with a message for each request whose decision cannot be applied.

        Raises ValueError for decisions about other requests.
        """
        if decoding in self._thorough and not isinstance(decisions, Chosen):
            # Twice what can be right: the check of a request then names what is wrong with its decisions.
            decisions = at_most(2 * sum(request.width for request in requests), decisions)
        continued: dict[Request, list[Continuation]] = {request: [] for request in requests}
        others: dict[Request, Completion | Retry] = {}
        for decision in decisions:
            request = decision.parent.request if isinstance(decision, Continuation) else decision.request
            if request not in continued:
                raise ValueError(f"decided about {request!r}, which it was not asked about")
            if isinstance(decision, Continuation):
                continued[request].append(decision)
            else:
                others[request] = decision
        thorough, changed = decoding in self._thorough, dict[Request, Completion | Retry | str]()
        for request, chosen in continued.items():
            try:
                if not others or (other := others.get(request)) is None:
                    check_continuations(request, chosen, self._vocab_size, thorough=thorough)
                elif chosen:
                    what = "completed" if isinstance(other, Completion) else "asked for"
                    raise ValueError(f"both continued and {what} {request!r}")
                else:
                    self._check_other(other, thorough=thorough)
                    changed[request] = other
            except plugin_errors() as error:
                changed[request] = self._fault_of(request, decoding, error)
        return {**continued, **changed} if changed else continued

    def _fault_of(self, request: Request, decoding: Decoding, error: BaseException) -> str:
        """Reports a fault that ends one request."""
        with about(request.spec.log_id):
            return self._plugin_faults.report(decoding, "decide", error)

    def _check_other(self, decision: Completion | Retry, *, thorough: bool) -> None:
        if isinstance(decision, Completion):
            check_completion(decision, self._vocab_size, thorough=thorough)
        elif isinstance(decision, Retry):
            check_retry(decision.request)
        else:
            raise ValueError(f"decided {decision!r}; expected a Continuation, a Completion or a Retry")

    # -------------------------------------------------------------- tokens in flight

    def held(self, decoding: Decoding, chosen: Chosen, logits: Logits) -> Chosen | str:
        """Returns what a strategy chose so that its tokens can be computed with before they are read.

        What a third party's strategy does to it later changes nothing for others. If it is invalid, returns a
        message that says why.
        """
        if decoding not in self._thorough:
            return chosen
        try:
            if len(chosen.tokens) != len(chosen.parents):
                raise ValueError(f"chose {len(chosen.tokens)} tokens for {len(chosen.parents)} sequences")
            tokens = held_tokens(chosen.tokens, logits.values, self._vocab_size)
            return replace(chosen, parents=list(chosen.parents), tokens=tokens)
        except plugin_errors() as error:
            return self._plugin_faults.report(decoding, "decide", error)

    def row_owners(
        self, decoding: Decoding, requests: Sequence[Request], chosen: Chosen
    ) -> Mapping[Request, RowOwners | str]:
        """Returns the rows of each request's tokens and their parents, without waiting for the tokens.

        For a request for which what was chosen is invalid, a message that says why.
        """
        rows: dict[Request, RowOwners] = {request: [] for request in requests}
        faults: dict[Request, str] = {}
        try:
            for row, parent in enumerate(chosen.parents):
                if parent.request not in rows:
                    raise ValueError(f"chose for {parent.request!r}, which it was not asked about")
                rows[parent.request].append((row, parent))
        except plugin_errors() as error:
            return dict.fromkeys(requests, self._plugin_faults.report(decoding, "decide", error))
        for request, owners in rows.items():
            if len(owners) == 1 and goes_on(request, owners[0][1]):
                continue
            try:
                check_lineage(request, [parent for _, parent in owners])
            except ValueError as error:
                faults[request] = self._fault_of(request, decoding, error)
        return {**rows, **faults} if faults else rows

    def any_drafts(self, decodings: Iterable[Decoding]) -> bool:
        """Whether one of the strategies drafts, for which it has to know the latest tokens."""
        return not self._drafting.isdisjoint(decodings)

    def trusts(self, decoding: Decoding) -> bool:
        """Whether quick checks are enough for what the strategy chooses."""
        return decoding not in self._thorough and decoding.streams

    def read(self, chosen: Chosen) -> list[int] | None:
        """Waits for tokens without details; returns None if one is invalid, for `resolve` to say which."""
        try:
            tokens = chosen.read()
        except plugin_errors():
            return None
        if len(tokens) != len(chosen.parents) or not are_tokens(tokens, self._vocab_size):
            return None
        return tokens

    def resolve(self, decoding: Decoding, chosen: Chosen) -> Read | str:
        """Waits for the token of each parent and its details; returns a message if they cannot be read."""
        try:
            tokens = resolve_tokens(chosen)
        except plugin_errors() as error:
            return self._plugin_faults.report(decoding, "Chosen.read", error)
        try:
            check_tokens((token for token, _ in tokens), self._vocab_size)
            if decoding in self._thorough:
                check_details([details for _, details in tokens])
        except ValueError:
            return [self._read(decoding, *each) for each in tokens]
        return tokens

    def _read(
        self, decoding: Decoding, token: int, details: TokenLogprobs | None
    ) -> tuple[int, TokenLogprobs | None] | str:
        try:
            check_tokens((token,), self._vocab_size)
            check_details([details])
        except ValueError as error:
            return self._plugin_faults.report(decoding, "decide", error)
        return token, details

    # -------------------------------------------------------------- bookkeeping

    def forget(self, request: Request, sequences: Collection[TokenSequence]) -> None:
        """Tells the strategy of a request that these sequences are gone. A fault is only logged."""
        if sequences:
            decoding: Decoding = request.decoding  # type: ignore[assignment]  # a Request knows it as a Strategy
            try:
                decoding.forget(list(sequences))
            except plugin_errors() as error:
                self._plugin_faults.report(decoding, "forget", error)

    def check(self, request: Request) -> None:
        """Asks the strategy of a request whether it rejects it. Raises RequestError if it does, or fails."""
        decoding = self.of(request)
        try:
            decoding.check(request)
        except RequestError:
            raise
        except plugin_errors() as error:
            raise RequestError(self._plugin_faults.report(decoding, "check", error)) from error

    def blame(self, request: Request, what: str) -> str:
        """Reports what the strategy of a request did wrong over all its decisions; returns the message."""
        return self._plugin_faults.report(request.decoding, "decide", ValueError(what))

    def counters(self) -> dict[str, float]:
        """The counters of all strategies; counters of the same name are added up."""
        totals: dict[str, float] = {}
        for decoding in self.all:
            try:
                found = [
                    (str(name), checked_number(name, value, counter=True))
                    for name, value in decoding.counters().items()
                ]
            except plugin_errors() as error:
                self._plugin_faults.report(decoding, "counters", error)
                continue
            for name, number in found:
                totals[name] = totals.get(name, 0) + number
        return totals


def by_decoding(requests: Iterable[Request]) -> dict[Decoding, list[Request]]:
    """Groups requests by the strategy that serves them."""
    groups: dict[Decoding, list[Request]] = {}
    for request in requests:
        decoding: Decoding = request.decoding  # type: ignore[assignment]  # a Request knows it as a Strategy
        groups.setdefault(decoding, []).append(request)
    return groups


def _check_width(decoding: Decoding, params: SamplingParams, width: object) -> None:
    """Raises ValueError for a width that the request's choices do not fit into."""
    least = params.n if decoding.streams else 1
    if type(width) is not int or width < least:
        raise ValueError(f"gave the width {width!r} for n={params.n}; expected an int from {least} on")
