"""Dispatches requests to decoding strategies, and contains the faults of strategies."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence

from turnout.core.engine.apply_decisions import RowOwners
from turnout.core.errors import RequestError, did_you_mean
from turnout.core.interfaces.decoding import Decoding
from turnout.core.plugin_faults import PluginFaults
from turnout.core.types.decision import Chosen, Completion, Continuation, resolve_tokens
from turnout.core.types.logprobs import TokenLogprobs
from turnout.core.types.plan import Logits
from turnout.core.types.request import Request
from turnout.core.types.request import Sequence as TokenSequence
from turnout.core.types.sampling_params import SamplingParams

__all__ = ["Decision", "DecodingDispatch", "by_decoding"]

logger = logging.getLogger(__name__)

Decision = list[Continuation] | Completion
"""What to do with one request."""


class DecodingDispatch:
    """The decoding strategies of an engine: chooses one for each request, and calls and checks them."""

    def __init__(self, decodings: Sequence[Decoding], vocab_size: int) -> None:
        self._decodings = tuple(decodings)
        """In the order in which they are asked whether they accept a request."""
        self._by_name: dict[str, Decoding] = {}
        """Those that a request may ask for by name, some of which no other request gets."""
        self._vocab_size = vocab_size
        self._drafting = any(type(decoding).draft is not Decoding.draft for decoding in decodings)
        """Whether any of them drafts; if none does, `draft` returns at once."""
        self._plugin_faults = PluginFaults(logger)

    def offer(self, by_name: Mapping[str, Decoding]) -> None:
        """Lets requests ask for these strategies by name."""
        self._by_name = dict(by_name)

    def choose(self, params: SamplingParams) -> Decoding:
        """Returns the strategy for these parameters. Raises RequestError if none accepts them."""
        for decoding in self._candidates(params.decoding):
            try:
                if decoding.accepts(params) and decoding.width(params) > 0:
                    return decoding
            except Exception as error:
                raise RequestError(self._report(decoding, error)) from error
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
            try:
                for sequence, draft_tokens in decoding.draft([s for request in group for s in request.live]):
                    _check_tokens(draft_tokens, self._vocab_size)
                    sequence.draft = draft_tokens[: sequence.room - 1]
            except Exception as error:
                self._report(decoding, error)

    def decide(
        self, decoding: Decoding, requests: Sequence[Request], logits: Logits, *, later: bool = False
    ) -> dict[Request, Decision] | Chosen | str:
        """Returns the decision for each of `requests`, or, if the strategy failed, a message that says why.

        `later`: returns `Chosen` as it is, without waiting, if the strategy gives it and drafts nothing.
        """
        try:
            decisions = decoding.decide(requests, logits)
            if later and isinstance(decisions, Chosen) and decoding.rows == 1:
                return decisions
            return _by_request(requests, decisions, self._vocab_size)
        except Exception as error:
            return self._report(decoding, error)

    def resolve_decisions(
        self, decoding: Decoding, requests: Sequence[Request], chosen: Chosen
    ) -> dict[Request, Decision] | str:
        """Waits for the chosen tokens, and returns what `decide` returns."""
        try:
            return _by_request(requests, chosen, self._vocab_size)
        except Exception as error:
            return self._report(decoding, error)

    def row_owners(
        self, decoding: Decoding, requests: Sequence[Request], chosen: Chosen
    ) -> dict[Request, RowOwners] | str:
        """Returns the rows of each request's tokens and their parents, without waiting for the tokens.

        If what was chosen is invalid, returns a message that says why.
        """
        rows: dict[Request, RowOwners] = {request: [] for request in requests}
        try:
            if len(chosen.tokens) != len(chosen.parents):
                raise ValueError(f"chose {len(chosen.tokens)} tokens for {len(chosen.parents)} sequences")
            for row, parent in enumerate(chosen.parents):
                if parent.request not in rows:
                    raise ValueError(f"chose for {parent.request!r}, which it was not asked about")
                _check_lives(parent)
                rows[parent.request].append((row, parent))
            if not all(rows.values()):
                raise ValueError("chose nothing for a request that it was asked about")
        except Exception as error:
            return self._report(decoding, error)
        return rows

    def resolve(self, decoding: Decoding, chosen: Chosen) -> list[tuple[int, TokenLogprobs | None]] | str:
        """Waits for the token of each parent and its details; returns a message if they are invalid."""
        try:
            tokens = resolve_tokens(chosen)
            _check_tokens((token for token, _ in tokens), self._vocab_size)
            return tokens
        except Exception as error:
            return self._report(decoding, error)

    def forget(self, request: Request, sequences: Collection[TokenSequence]) -> None:
        """Tells the strategy of a request that these sequences are gone. A fault is only logged."""
        if sequences:
            decoding: Decoding = request.decoding  # type: ignore[assignment]  # a Request knows it as a Strategy
            try:
                decoding.forget(list(sequences))
            except Exception as error:
                self._report(decoding, error)

    def counters(self) -> dict[str, float]:
        """The counters of all strategies; counters of the same name are added up."""
        totals: dict[str, float] = {}
        for decoding in dict.fromkeys((*self._decodings, *self._by_name.values())):
            try:
                for name, value in decoding.counters().items():
                    totals[name] = totals.get(name, 0) + value
            except Exception as error:
                self._report(decoding, error)
        return totals

    def _report(self, decoding: Decoding, error: Exception) -> str:
        return self._plugin_faults.report(f"decoding strategy {type(decoding).__name__}", error)


def _by_request(
    requests: Sequence[Request], decisions: Iterable[Continuation | Completion], vocab_size: int
) -> dict[Request, Decision]:
    """Groups decisions by request. Raises ValueError for decisions that cannot be applied."""
    continued: dict[Request, list[Continuation]] = {request: [] for request in requests}
    completed: dict[Request, Completion] = {}
    for decision in decisions:
        request = decision.request if isinstance(decision, Completion) else decision.parent.request
        if request not in continued:
            raise ValueError(f"decided about {request!r}, which it was not asked about")
        if isinstance(decision, Completion):
            _check(decision)
            completed[request] = decision
        elif decision.tokens:
            _check_lives(decision.parent)
            _check_tokens(decision.tokens, vocab_size)
            continued[request].append(decision)
        else:
            raise ValueError(f"continued {request!r} with no token")
    for request, chosen in continued.items():
        if not chosen and request not in completed:
            raise ValueError(f"gave no continuation for {request!r}")
        if chosen and request in completed:
            raise ValueError(f"both continued and completed {request!r}")
    return {request: completed.get(request, chosen) for request, chosen in continued.items()}


def _check_lives(parent: TokenSequence) -> None:
    if parent not in parent.request.live:
        raise ValueError(f"continued a sequence of {parent.request!r} that is no longer live")


def _check_tokens(tokens: Iterable[int], vocab_size: int) -> None:
    """Raises ValueError for a token outside the vocabulary: it would be read from beyond the embedding."""
    for token in tokens:
        if not 0 <= token < vocab_size:
            raise ValueError(f"gave token {token!r}, which is outside the vocabulary of {vocab_size} tokens")


def _check(completion: Completion) -> None:
    request, choices = completion
    if len(choices) > request.params.n:
        raise ValueError(f"completed {request!r} with {len(choices)} choices, n is {request.params.n}")
    if not all(choice.tokens for choice in choices):
        raise ValueError(f"completed {request!r} with a choice without tokens")


def by_decoding(requests: Iterable[Request]) -> dict[Decoding, list[Request]]:
    """Groups requests by the strategy that serves them."""
    groups: dict[Decoding, list[Request]] = {}
    for request in requests:
        decoding: Decoding = request.decoding  # type: ignore[assignment]  # a Request knows it as a Strategy
        groups.setdefault(decoding, []).append(request)
    return groups
