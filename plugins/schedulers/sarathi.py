"""Stall-free batching: decodes first, prompts in chunks."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from turnout.core.errors import ConfigError
from turnout.core.interfaces.scheduling import Entry, SchedulingPolicy, Share
from turnout.core.types.views import View

__all__ = ["Sarathi"]


class Sarathi(SchedulingPolicy):
    """No prompt holds decoding up (Sarathi-Serve, Agrawal et al., OSDI 2024).

    Every running request that only needs its next token is served, then prompts get what is left of the
    step's budget, at most `chunk` tokens of them together: first those begun, in order of admission,
    then waiting ones in order of arrival; nobody overtakes the head. `chunk` bounds how long a step
    lasts, and so the gap between two tokens; smaller is smoother, larger fills prompts faster.

    A request of several choices may get as many tokens as it has choices where `chunk` is less.
    """

    head_of_line = True
    runners_first = True

    def __init__(self, chunk: int = 512) -> None:
        if chunk < 1:
            raise ConfigError(f"chunk must be at least 1 token, not {chunk}")
        self._chunk = chunk

    def order(self, view: View) -> Iterable[Entry]:
        filling = []
        for request in view.running:
            if request.decoding:
                yield request
            else:
                filling.append((request, request.pending))
        missing = ((request, request.pending - view.cached(request)) for request in view.waiting)
        left = self._chunk
        for request, tokens in chain(filling, missing):
            if left <= 0:
                break
            share = max(min(left, tokens), request.choices)
            yield Share(request, share)
            left -= share
