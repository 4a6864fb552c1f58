"""Between the engine and decoding strategies: who serves whom, and faults that are named and contained."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from turnout.core.errors import RequestError
from turnout.core.interfaces import Decoding
from turnout.core.plan import Logits
from turnout.core.request import Continuation, Request, SamplingParams

__all__ = ["Strategies", "by_strategy"]

logger = logging.getLogger(__name__)


class Strategies:
    """The strategies on offer."""

    def __init__(self, decodings: Sequence[Decoding]) -> None:
        self._decodings = tuple(decodings)
        """Asked in this order which one serves a request."""
        self._complaints: set[tuple[str, type[Exception]]] = set()

    def choose(self, params: SamplingParams) -> Decoding:
        """Who serves a request with these parameters. Raises RequestError when nobody does."""
        for decoding in self._decodings:
            try:
                if decoding.accepts(params) and decoding.width(params) > 0:
                    return decoding
            except Exception as error:
                raise RequestError(self._complain(decoding, error)) from error
        raise RequestError("no decoding strategy serves these sampling parameters")

    def draft(self, requests: Iterable[Request]) -> None:
        """Let them guess ahead for requests about to get logits. A fault costs the guesses, no more."""
        for decoding, group in by_strategy(requests).items():
            try:
                for sequence, guesses in decoding.draft([s for request in group for s in request.live]):
                    sequence.draft = guesses[: sequence.room - 1]
            except Exception as error:
                self._complain(decoding, error)

    def decide(
        self, decoding: Decoding, requests: Sequence[Request], logits: Logits
    ) -> dict[Request, list[Continuation]] | str:
        """What to do with each of `requests`; or, when the strategy failed, why."""
        decisions: dict[Request, list[Continuation]] = {request: [] for request in requests}
        try:
            for continuation in decoding.decide(requests, logits):
                if not continuation.tokens:
                    raise ValueError(f"continued {continuation.parent.request!r} with no token")
                decisions[continuation.parent.request].append(continuation)
            for request, chosen in decisions.items():
                if not chosen:
                    raise ValueError(f"gave no continuation for {request!r}")
        except Exception as error:
            return self._complain(decoding, error)
        return decisions

    def _complain(self, decoding: Decoding, error: Exception) -> str:
        """Name a strategy's fault; in the log once for each strategy and kind of error."""
        name = type(decoding).__name__
        message = f"decoding strategy {name} failed: {error or type(error).__name__}"
        if (name, type(error)) not in self._complaints:
            self._complaints.add((name, type(error)))
            logger.error(message, exc_info=error)
        return message


def by_strategy(requests: Iterable[Request]) -> dict[Decoding, list[Request]]:
    groups: dict[Decoding, list[Request]] = {}
    for request in requests:
        groups.setdefault(request.decoding, []).append(request)
    return groups
