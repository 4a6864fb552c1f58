"""Beam search, with the results of transformers' ``generate(num_beams=…)``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from turnout.core.errors import ConfigError, RequestError
from turnout.core.interfaces.decoding import Decoding
from turnout.core.types.decision import Completion, Continuation
from turnout.core.types.plan import Logits
from turnout.core.types.request import Request
from turnout.core.types.sampling_params import SamplingParams

__all__ = ["Beam"]


class Beam(Decoding):
    """Searches for the most likely texts, several at a time; serves requests with `use_beam_search`.

    The options apply to requests that do not set `beam_width` and the others themselves. Nothing is random.
    """

    streams = False
    resumes = True

    def __init__(
        self,
        width: Annotated[int, Field(description="Beams kept at every step.")] = 4,
        length_penalty: Annotated[
            float, Field(description="Above 0 favours long texts, below 0 short ones.")
        ] = 1.0,
        early_stopping: Annotated[
            bool | Literal["never"], Field(description="When to end once `width` beams are finished.")
        ] = False,
    ) -> None:
        self._width = width
        self._defaults: dict[str, Any] = {
            "use_beam_search": True,
            "beam_width": width,
            "length_penalty": length_penalty,
            "early_stopping": early_stopping,
        }
        try:
            SamplingParams(**self._defaults)
        except RequestError as error:
            raise ConfigError(str(error)) from None

    @property
    def defaults(self) -> Mapping[str, Any]:
        return self._defaults

    def accepts(self, params: SamplingParams) -> bool:
        return params.use_beam_search

    def width(self, params: SamplingParams) -> int:
        return params.beam_width or (params.n if params.n > 1 else self._width)

    def decide(self, requests: Sequence[Request], logits: Logits) -> Iterable[Continuation | Completion]:
        from turnout.plugins.decoding.beam.search import search

        return search(requests, logits)
