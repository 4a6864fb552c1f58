"""Dispatches requests that generate nothing to pooling strategies, and contains the faults of strategies."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from turnout.core.engine.pooling.folding import fold
from turnout.core.errors import RequestError, did_you_mean
from turnout.core.interfaces.pooling import Pooling, PoolingOutput
from turnout.core.plugin_faults import PluginFaults, plugin_errors
from turnout.core.types.pooling import Pooled, PoolingFacts, PoolingParams, PromptPooling, ScoreHead
from turnout.core.types.request import Request, RequestSpec

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["PoolingDispatch"]

logger = logging.getLogger(__name__)


class PoolingDispatch:
    """The pooling strategies of an engine, and what follows them."""

    def __init__(
        self,
        strategies: Mapping[str, Pooling],
        facts: PoolingFacts,
        output: PoolingOutput,
        *,
        head: ScoreHead | None = None,
        cuts: frozenset[int] = frozenset(),
    ) -> None:
        """cuts: the sizes to which vectors may be cut; empty: any."""
        self.facts = facts
        self._strategies = dict(strategies)
        self._output = output
        self._head = head
        self._cuts = cuts
        self._plugin_faults = PluginFaults("pooling", logger)

    def admit(self, spec: RequestSpec) -> PromptPooling:
        """Returns how the prompt of a request is pooled. Raises RequestError if that cannot be."""
        params = spec.pooling or PoolingParams()
        if params.task == "classify":
            name = self._head_pooling(params)
        else:
            self._check_cut(params.dimensions)
            name = params.pooling or self.facts.pooling
        if params.second_text > len(spec.prompt):
            raise RequestError("second_text lies beyond the prompt", "second_text")
        return PromptPooling(params, self._named(name), len(spec.prompt), whole=self.facts.encoder)

    def without_padding(self, spec: RequestSpec) -> RequestSpec:
        """Returns the request without the end of its prompt that the model's head passes over."""
        padding = (
            self._head.padding if self._head and spec.pooling and spec.pooling.task == "classify" else None
        )
        kept = len(spec.prompt)
        while kept > 1 and spec.prompt[kept - 1] == padding:
            kept -= 1
        return spec if kept == len(spec.prompt) else msgspec.structs.replace(spec, prompt=spec.prompt[:kept])

    def read(self, request: Request, hidden: Tensor) -> str | None:
        """Takes in hidden states of a request's prompt; returns why that failed, if it did."""
        of = _pooling_of(request)
        strategy = _strategy_of(of)
        try:
            fold(strategy, of, hidden)
        except plugin_errors() as error:
            return self._plugin_faults.report(strategy, "fold", error)
        return None

    def result(self, request: Request) -> Callable[[], Pooled] | str:
        """Returns what waits for the vectors of a prompt that was read, or why there are none."""
        of = _pooling_of(request)
        strategy = _strategy_of(of)
        try:
            vectors = strategy.vectors(of.state, of.length)
            _check_shape(strategy, tuple(vectors.shape), of.length)
            return self._output(vectors, of.params)  # which fails at vectors of another size or kind
        except plugin_errors() as error:
            return self._plugin_faults.report(strategy, "vectors", error)

    def _named(self, name: str) -> Pooling:
        if name not in self._strategies:
            known = ", ".join(sorted(self._strategies))
            close = did_you_mean(name[:40], self._strategies)
            raise RequestError(f"no pooling is called {name[:40]!r} here; known: {known}{close}", "pooling")
        return self._strategies[name]

    def _head_pooling(self, params: PoolingParams) -> str:
        if self._head is None:
            raise RequestError(
                "the model has no classification head, so it gives no scores; serve a cross-encoder or a "
                "classifier",
                "model",
            )
        if params.pooling not in (None, self._head.pooling):
            raise RequestError(f"the model's head reads pooling {self._head.pooling!r} alone", "pooling")
        return self._head.pooling

    def _check_cut(self, dimensions: int | None) -> None:
        if dimensions is None:
            return
        if dimensions > self.facts.size:
            raise RequestError(
                f"dimensions is {dimensions:,}, but the model's vectors have {self.facts.size:,}; ask for at "
                "most that",
                "dimensions",
            )
        if self._cuts and dimensions not in self._cuts:
            listed = ", ".join(map(str, sorted(self._cuts)))
            raise RequestError(
                f"the model was not trained for {dimensions:,} dimensions; ask for one of {listed}",
                "dimensions",
            )


def _pooling_of(request: Request) -> PromptPooling:
    assert request.pooling is not None
    return request.pooling


def _strategy_of(of: PromptPooling) -> Pooling:
    strategy = of.strategy
    assert isinstance(strategy, Pooling)
    return strategy


def _check_shape(strategy: Pooling, shape: tuple[int, ...], length: int) -> None:
    """Raises ValueError for vectors that are not what the strategy declares."""
    if len(shape) != 1 + strategy.per_token or (strategy.per_token and shape[0] != length):
        expected = f"[{length}, size]" if strategy.per_token else "[size]"
        raise ValueError(f"gave vectors of shape {list(shape)}; expected {expected}")
