"""Writes the text of a stream to its client in the moment in which the engine's delta comes."""

from __future__ import annotations

from turnout.server.generation.generation import Generation
from turnout.server.http.connections.open_response import OpenResponse
from turnout.server.renderers.renderer import Renderer
from turnout.text.choice_text import TextDelta

__all__ = ["DirectText"]


class DirectText:
    """Renders what a delta adds to a choice that is open already, and writes it.

    ::

        engine's message, of many deltas ──▶ queue ── a task's turn ──▶ generators ──▶ client
                                        └──────────────── directly ─────────────────▶

    Waking a task and its generators for each token takes longer than rendering it. So deltas that only go on
    are taken while the generators wait for the next one; the first of a choice, its last, and what a slow
    client has not read yet, go through them.
    """

    def __init__(self, generation: Generation, renderer: Renderer) -> None:
        self._generation, self._renderer = generation, renderer
        self._response: OpenResponse | None = None
        self.opened: set[int] = set()
        """The choices whose first delta has been sent."""

    def begin(self, response: OpenResponse) -> None:
        """Write into this response from now on."""
        self._response = response
        self._generation.direct = self

    def takes(self, choice: int) -> bool:
        """Whether a delta of the choice can be shown now."""
        return choice in self.opened and self._response is not None and self._response.writable

    def show(self, delta: TextDelta) -> None:
        """Send what a delta adds; to be called where `takes` says so."""
        assert self._response is not None
        self._response.write(self._renderer.delta(delta, self._generation))
