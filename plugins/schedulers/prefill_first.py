"""Prompts before decodes, never mixed."""

from __future__ import annotations

from collections.abc import Iterable

from turnout.core.interfaces.scheduling import SchedulingPolicy
from turnout.core.types.views import RequestView, View

__all__ = ["PrefillFirst"]


class PrefillFirst(SchedulingPolicy):
    """What vLLM did before chunked prefill (Kwon et al., SOSP 2023, its first scheduler).

    A step computes prompts alone (those begun in order of admission, then waiting ones in order of
    arrival) as long as the first of them fits whole, else decodes alone. New requests see their first
    token soon, running ones stall meanwhile. No bound: an endless stream of prompts that fit keeps
    decodes waiting.
    """

    head_of_line = True

    def order(self, view: View) -> Iterable[RequestView]:
        decoding: list[RequestView] = []
        prompts: list[RequestView] = []
        for request in view.running:
            (decoding if request.decoding else prompts).append(request)
        prompts += view.waiting
        # Without asking, a prompt that cannot grow would keep from running those who could make room.
        if not decoding or (prompts and view.fits(prompts[0])):
            return prompts
        return decoding
