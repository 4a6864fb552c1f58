"""Sampling from the model's distribution, with temperature, top-k, top-p and min-p."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from turnout.core.errors import ConfigError, RequestError
from turnout.core.interfaces.decoding import Decoding
from turnout.core.types.decision import Continuation
from turnout.core.types.plan import Logits
from turnout.core.types.request import Request
from turnout.core.types.sampling_params import SamplingParams

__all__ = ["Sampling"]

_FOR_OTHERS = Field(description="For requests that do not set the parameter; null: the model's own.")


class Sampling(Decoding):
    """Draws each token at random; serves requests with a temperature above 0.

    Each option applies to requests that do not set the parameter of that name themselves. A draw depends only
    on the request's seed, the choice and the position: not on the batch, nor on preemption.
    """

    resumes = True

    def __init__(
        self,
        temperature: Annotated[float | None, _FOR_OTHERS] = None,
        top_p: Annotated[float | None, _FOR_OTHERS] = None,
        top_k: Annotated[int | None, _FOR_OTHERS] = None,
        min_p: Annotated[float | None, _FOR_OTHERS] = None,
        repetition_penalty: Annotated[float | None, _FOR_OTHERS] = None,
    ) -> None:
        given: dict[str, Any] = {
            "temperature": temperature,
            "top_p": top_p,
            "top_k": top_k,
            "min_p": min_p,
            "repetition_penalty": repetition_penalty,
        }
        self._defaults = {name: value for name, value in given.items() if value is not None}
        try:
            SamplingParams(**self._defaults)
        except RequestError as error:
            raise ConfigError(str(error)) from None

    @property
    def defaults(self) -> Mapping[str, Any]:
        return self._defaults

    def accepts(self, params: SamplingParams) -> bool:
        return params.sampled

    def decide(self, requests: Sequence[Request], logits: Logits) -> Iterable[Continuation]:
        from turnout.plugins.decoding.candidates import continue_each
        from turnout.sampling.draws import draw

        return continue_each(requests, logits, draw)
