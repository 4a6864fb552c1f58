"""Between the engine and decoding strategies: who serves whom, and faults that are named and contained."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence

from turnout.core.engine.apply_decisions import RowOwners
from turnout.core.errors import RequestError
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
"""About one request."""


class DecodingDispatch:
    """The strategies on offer."""

    def __init__(self, decodings: Sequence[Decoding], vocab_size: int) -> None:
        self._decodings = tuple(decodings)
        """Asked in this order which one serves a request."""
        self._vocab_size = vocab_size
        self._guess = any(type(decoding).draft is not Decoding.draft for decoding in decodings)
        """One of them does: else nobody need be asked, nor looked up who could be."""
        self._plugin_faults = PluginFaults(logger)

    def choose(self, params: SamplingParams) -> Decoding:
        """Who serves a request with these parameters. Raises RequestError when nobody does."""
        for decoding in self._decodings:
            try:
                if decoding.accepts(params) and decoding.width(params) > 0:
                    return decoding
            except Exception as error:
                raise RequestError(self._report(decoding, error)) from error
        raise RequestError("no decoding strategy serves these sampling parameters")

    def draft(self, requests: Iterable[Request]) -> None:
        """Let them guess ahead for requests about to get logits. A fault costs the guesses, no more."""
        if not self._guess:
            return
        for decoding, group in by_decoding(requests).items():
            try:
                for sequence, guesses in decoding.draft([s for request in group for s in request.live]):
                    _check_tokens(guesses, self._vocab_size)
                    sequence.draft = guesses[: sequence.room - 1]
            except Exception as error:
                self._report(decoding, error)

    def decide(
        self, decoding: Decoding, requests: Sequence[Request], logits: Logits, *, later: bool = False
    ) -> dict[Request, Decision] | Chosen | str:
        """What to do with each of `requests`; or, when the strategy failed, why.

        `later`: it will do to know that tokens were chosen, of a strategy that can say so and drafts nothing.
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
        """As `decide`, of what was chosen: waits for it."""
        try:
            return _by_request(requests, chosen, self._vocab_size)
        except Exception as error:
            return self._report(decoding, error)

    def row_owners(
        self, decoding: Decoding, requests: Sequence[Request], chosen: Chosen
    ) -> dict[Request, RowOwners] | str:
        """Of each of `requests` which rows were chosen for it, and by which parent; or, when that cannot be,
        why."""
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
        """The token for each parent, and its details: waits."""
        try:
            tokens = resolve_tokens(chosen)
            _check_tokens((token for token, _ in tokens), self._vocab_size)
            return tokens
        except Exception as error:
            return self._report(decoding, error)

    def forget(self, request: Request, sequences: Collection[TokenSequence]) -> None:
        """These of its sequences are gone. A fault is named and harms nobody."""
        if sequences:
            decoding: Decoding = request.decoding  # type: ignore[assignment]  # requests know less of it
            try:
                decoding.forget(list(sequences))
            except Exception as error:
                self._report(decoding, error)

    def counters(self) -> dict[str, float]:
        """Of all strategies; those of equal names are added up."""
        totals: dict[str, float] = {}
        for decoding in self._decodings:
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
    """Raises ValueError for decisions that cannot be carried out."""
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
        raise ValueError(f"continued a sequence of {parent.request!r} that does not live any more")


def _check_tokens(tokens: Iterable[int], vocab_size: int) -> None:
    """The model looks them up next: one that is not there would be read from beyond its embedding."""
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
    groups: dict[Decoding, list[Request]] = {}
    for request in requests:
        strategy: Decoding = request.decoding  # type: ignore[assignment]  # requests know less of it
        groups.setdefault(strategy, []).append(request)
    return groups
