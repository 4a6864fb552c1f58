"""Prompts before decodes, never mixed."""

from __future__ import annotations

from collections.abc import Iterable

from turnout.core.interfaces.scheduling import SchedulingPolicy
from turnout.core.types.request import RequestView
from turnout.core.types.views import View

__all__ = ["PrefillFirst"]


class PrefillFirst(SchedulingPolicy):
    """Serves prompts before decodes, never mixed, as vLLM did before chunked prefill.

    Kwon et al., SOSP 2023, its first scheduler. A step computes prompts alone (begun ones in order of
    admission, then waiting ones in order of arrival) as long as the first of them fits whole, and otherwise
    decodes alone. New requests get their first token soon; running ones stall meanwhile. No bound: an
    endless stream of prompts that fit keeps decodes waiting.
    """

    head_of_line = True

    def __init__(self) -> None:
        self._fills = True
        """This step computes prompts."""

    def order(self, view: View) -> Iterable[RequestView]:
        decoding: list[RequestView] = []
        prompts: list[RequestView] = []
        for request in view.running:
            (decoding if request.decoding else prompts).append(request)
        prompts += view.waiting
        # Without this check, a prompt that cannot grow would block the requests whose end makes room for it.
        self._fills = not decoding or bool(prompts and view.fits(prompts[0]))
        return prompts if self._fills else decoding

    def why(self, request: RequestView) -> str:
        if request.decoding:
            return "pauses: this step computes prompts" if self._fills else "decodes: no prompt fits now"
        return "prompts go before decodes" if self._fills else "waits: the first prompt does not fit now"
