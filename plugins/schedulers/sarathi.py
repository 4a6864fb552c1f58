"""Stall-free batching: decodes first, prompts in chunks."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Annotated

from pydantic import Field

from turnout.core.errors import ConfigError
from turnout.core.interfaces.scheduling import Entry, SchedulingPolicy, Share
from turnout.core.types.request import RequestView
from turnout.core.types.views import View

__all__ = ["Sarathi"]


class Sarathi(SchedulingPolicy):
    """Serves decodes first and prompts in chunks, so that no prompt stalls decoding.

    Sarathi-Serve, Agrawal et al., OSDI 2024: each running request that only needs its next token is served,
    then prompts get what is left of the step's budget, at most `chunk` tokens of them together: begun
    prompts in order of admission, then waiting ones in order of arrival; none overtakes the first. `chunk`
    bounds how long a step takes, and so the gap between two tokens.

    A request of several choices may get as many tokens as it has choices if `chunk` is less than that.
    """

    head_of_line = True
    runners_first = True

    def __init__(
        self,
        chunk: Annotated[
            int,
            Field(description="Most tokens of prompts in a step; fewer even out the gaps between tokens."),
        ] = 512,
    ) -> None:
        if chunk < 1:
            raise ConfigError(f"chunk must be at least 1 token, not {chunk}")
        self._chunk = chunk
        self._shares: dict[RequestView, int] = {}
        """What prompts may compute in this step."""

    def order(self, view: View) -> Iterable[Entry]:
        self._shares = {}
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
            share = self._shares[request] = max(min(left, tokens), request.choices)
            yield Share(request, share)
            left -= share

    def why(self, request: RequestView) -> str:
        if (share := self._shares.get(request)) is not None:
            return f"{share} of the {self._chunk} tokens that prompts get in a step"
        if request.decoding:
            return "decodes: before all prompts"
        return f"waits: prompts before it take the {self._chunk} tokens of this step"
