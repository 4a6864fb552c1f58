"""Pooling: requests that generate nothing, and what models and their folders say of them."""

from turnout.core.types.pooling.model import Activation, EmbedderConfig, PoolingFacts, ScoreHead, Similarity
from turnout.core.types.pooling.prompt import Pooled, PoolingParams, PromptPooling, Reads, Task

__all__ = [
    "Activation",
    "EmbedderConfig",
    "Pooled",
    "PoolingFacts",
    "PoolingParams",
    "PromptPooling",
    "Reads",
    "ScoreHead",
    "Similarity",
    "Task",
]
