"""The pooling of an engine: its strategies, and what follows them, as tensors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from turnout.config import EngineConfig
from turnout.core.engine.pooling.dispatch import PoolingDispatch
from turnout.core.errors import ConfigError
from turnout.core.interfaces.pooling import Pooling, PoolingOutput
from turnout.core.registry.registry import Registry
from turnout.core.registry.spec import PluginSpec
from turnout.core.types.model_spec import ModelSpec
from turnout.core.types.pooling import (
    Activation,
    EmbedderConfig,
    PairTemplate,
    Pooled,
    PoolingFacts,
    PoolingParams,
)
from turnout.kernels.gpu.staging import to_host_async

__all__ = ["VectorOutput", "build_pooling"]

logger = logging.getLogger(__name__)

OF_DECODERS, OF_ENCODERS = "last", "mean"
"""The strategy where neither the configuration nor the model's folder names one."""


def build_pooling(
    registry: Registry,
    config: EngineConfig,
    spec: ModelSpec,
    model: nn.Module,
    dtype: torch.dtype,
    embedder: EmbedderConfig | None,
    projection: nn.Module | None = None,
    pair: PairTemplate | None = None,
) -> PoolingDispatch:
    """Builds the pooling of `model`.

    embedder: what its folder says; projection: the layers of `embedder.projections`, if it has some; pair:
    what makes one text of a pair. Raises ConfigError or PluginError for a strategy that cannot be had.
    """
    said = embedder or EmbedderConfig()
    chosen = config.pooling or said.pooling or (OF_ENCODERS if spec.encoder else OF_DECODERS)
    strategies = _strategies(registry, chosen)
    output = VectorOutput(model, spec, dtype, said, projection)
    facts = PoolingFacts(
        pooling=PluginSpec.parse(chosen).name,
        strategies=sorted(strategies),
        per_token=sorted(name for name, each in strategies.items() if each.per_token),
        size=output.size,
        encoder=spec.encoder,
        generates=spec.generates and not spec.encoder,
        embedder=embedder is not None or config.pooling is not None,
        max_length=said.max_length,
        lower_case=said.lower_case,
        prompts=dict(said.prompts),
        default_prompt=said.default_prompt,
        similarity=said.similarity,
        labels=list(spec.head.labels) if spec.head else [],
        pair=pair,
    )
    return PoolingDispatch(strategies, facts, output, head=spec.head, cuts=frozenset(said.dimensions))


def _strategies(registry: Registry, chosen: str) -> Mapping[str, Pooling]:
    """All of them by name, the chosen one with its options."""
    name = PluginSpec.parse(chosen).name
    found = {name: registry.create("pooling", chosen)}
    for other in registry.names("pooling"):
        if other != name:
            try:
                found[other] = registry.create("pooling", other)
            except ConfigError as error:  # no configuration named it
                logger.warning("pooling %s is not on offer: %s", other, error)
    return found


@dataclass(frozen=True)
class VectorOutput(PoolingOutput):
    """Projects, cuts and normalizes vectors, or computes the model's head.

    Each vector is computed by itself, so that its bits do not depend on what else a step ends.
    """

    model: nn.Module
    spec: ModelSpec
    dtype: torch.dtype
    """Of the model's activations, and so of what its head reads."""
    embedder: EmbedderConfig
    projection: nn.Module | None = None

    @property
    def size(self) -> int:
        """Numbers of a vector, before it is cut."""
        if self.projection is None:
            return self.spec.hidden_size
        like = next(self.projection.parameters())
        return len(self._projected(like.new_zeros(self.spec.hidden_size)))

    def __call__(self, vectors: Tensor, params: PoolingParams) -> Callable[[], Pooled]:
        with torch.inference_mode():
            made = (
                self._scores(vectors, params)
                if params.task == "classify"
                else self._embedding(vectors, params)
            )
            host = to_host_async(made.float().contiguous())
        shape = tuple(made.shape)
        return lambda: Pooled(host().numpy().astype("<f4", copy=False).tobytes(), shape)

    def _embedding(self, vectors: Tensor, params: PoolingParams) -> Tensor:
        vectors, normalize = self._projected(vectors), params.normalize
        kept = params.dimensions
        if kept is None and self.embedder.truncate_dim is not None:
            # As sentence-transformers does: the folder's modules end with the norm, and the cut follows them.
            if normalize is None and self._normalizes:
                vectors = nn.functional.normalize(vectors.float(), dim=-1)
            kept, normalize = self.embedder.truncate_dim, normalize or False
        elif normalize is None:
            normalize = self._normalizes
        vectors = vectors[..., :kept]
        return nn.functional.normalize(vectors.float(), dim=-1) if normalize else vectors

    @property
    def _normalizes(self) -> bool:
        return self.embedder.normalize is not False

    def _projected(self, vectors: Tensor) -> Tensor:
        if self.projection is None:
            return vectors
        rows = [self.projection(row[None])[0] for row in vectors.reshape(-1, vectors.shape[-1])]
        return torch.stack(rows).reshape(*vectors.shape[:-1], -1)

    def _scores(self, vector: Tensor, params: PoolingParams) -> Tensor:
        assert self.spec.head is not None
        scores: Tensor = self.model.score(vector[None].to(self.dtype))[0].float()  # type: ignore[operator]
        if not params.activation:
            return scores
        of_head: Activation = "sigmoid" if params.pair else self.spec.head.activation
        return _activated(scores, self.embedder.activation or of_head)


def _activated(scores: Tensor, activation: Activation) -> Tensor:
    if activation == "sigmoid":
        return scores.sigmoid()
    return scores.softmax(-1) if activation == "softmax" else scores
