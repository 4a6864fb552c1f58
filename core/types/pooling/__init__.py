"""Pooling: requests that generate nothing, and what models and their folders say of them."""

from turnout.core.types.pooling.model import (
    NO_TEXT,
    Activation,
    EmbedderConfig,
    PairTemplate,
    PoolingFacts,
    ScoreHead,
    Similarity,
)
from turnout.core.types.pooling.prompt import Pooled, PoolingParams, PromptPooling, Reads, Task

__all__ = [
    "NO_TEXT",
    "Activation",
    "EmbedderConfig",
    "PairTemplate",
    "Pooled",
    "PoolingFacts",
    "PoolingParams",
    "PromptPooling",
    "Reads",
    "ScoreHead",
    "Similarity",
    "Task",
]
