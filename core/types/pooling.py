"""Pooling: requests that generate nothing, and what their prompts' hidden states become."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from turnout.core.errors import RequestError

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

Task = Literal["embed", "classify"]
Reads = Literal["first", "last", "all"]
Activation = Literal["sigmoid", "softmax", "none"]
Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]

MOST_DIMENSIONS = 2**31 - 1


class PoolingParams(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What becomes of a prompt's hidden states, of a request that generates nothing."""

    task: Task = "embed"
    """``embed``: a vector, or one for each token; ``classify``: the scores of the model's head."""
    pooling: str | None = None
    """The name of the strategy; None: the model's own."""
    normalize: bool | None = None
    """Whether vectors get the length 1; None: as the model's folder says."""
    dimensions: int | None = None
    """Keeps so many leading numbers of a vector, which is normalized after that; None: all."""
    activation: bool = True
    """Of ``classify``: whether the head's sigmoid or softmax is applied."""
    second_text: int = 0
    """The position of the first token of a pair's second text; 0: the prompt is one text."""

    def __post_init__(self) -> None:
        if self.task not in ("embed", "classify"):
            raise RequestError("task must be embed or classify", "task")
        if self.dimensions is not None:
            _check_whole("dimensions", self.dimensions, 1)
        _check_whole("second_text", self.second_text, 0)
        if self.task == "classify" and self.dimensions is not None:
            raise RequestError("dimensions cuts embeddings; scores are never cut", "dimensions")


def _check_whole(name: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MOST_DIMENSIONS:
        raise RequestError(f"{name} must be a whole number from {least} on, not {str(value)[:40]}", name)


class Pooled(msgspec.Struct, frozen=True):
    """What a pooling request ends with."""

    data: bytes
    """float32, the low byte first, row by row."""
    shape: tuple[int, ...]
    """[size], or [tokens, size] of a strategy that gives a vector for each token."""


@dataclass(frozen=True)
class ScoreHead:
    """The classification head of a checkpoint. The module computes it: ``score(pooled)``."""

    labels: tuple[str, ...]
    """The names of the scores, in their order."""
    pooling: str = "cls"
    """The strategy whose vector the head reads."""
    activation: Activation = "none"
    """What turns scores into probabilities."""


@dataclass(frozen=True)
class EmbedderConfig:
    """How a model's folder says that texts are embedded."""

    pooling: str | None = None
    """The name of the strategy; None: the folder does not say."""
    normalize: bool | None = None
    """Whether vectors get the length 1; None: the folder does not say."""
    projections: tuple[Path, ...] = ()
    """Folders of linear layers that vectors go through, in order."""
    max_length: int | None = None
    """The most tokens of a text; None: as many as the model takes."""
    lower_case: bool = False
    """Whether texts are lowered before they become tokens."""
    prompts: Mapping[str, str] = field(default_factory=dict)
    """What is put in front of a text, by name."""
    default_prompt: str | None = None
    """The name of the prompt for texts that name none."""
    similarity: Similarity = "cosine"
    """How two vectors are compared."""
    dimensions: tuple[int, ...] = ()
    """The sizes to which the model was trained to be cut; empty: any."""
    activation: Activation | None = None
    """What turns the head's scores into probabilities; None: as the head has it."""


class PoolingFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a server has to know of an engine that pools."""

    pooling: str
    """The strategy of requests that name none."""
    strategies: list[str] = []
    """All on offer."""
    per_token: list[str] = []
    """Those of them that give a vector for each token."""
    size: int
    """Numbers of a vector."""
    encoder: bool = False
    """Whether the model generates no text."""
    embedder: bool = False
    """Whether the model's folder, or the configuration, says how it embeds."""
    max_length: int | None = None
    """The most tokens of a text, if fewer than the model takes."""
    lower_case: bool = False
    """Whether texts are lowered before they become tokens."""
    prompts: dict[str, str] = {}
    """What is put in front of a text, by name."""
    default_prompt: str | None = None
    """The name of the prompt for texts that name none."""
    similarity: Similarity = "cosine"
    """How two vectors are compared."""
    labels: list[str] = []
    """The names of the head's scores; empty: the model has no head."""


class Strategy(Protocol):
    """The part of `Pooling` by which steps are planned."""

    @property
    def reads(self) -> Reads: ...


@dataclass(slots=True, eq=False)
class PromptPooling:
    """How far the pooling of a request's prompt has come.

    ::

        prompt  [ folded .............. | rest ... |  not computed yet ...... ]
                                         read ends ^
    """

    params: PoolingParams
    """What the client asked for."""
    strategy: Strategy
    """The strategy that pools."""
    length: int
    """Tokens of the prompt."""
    whole: bool = False
    """The model attends in both directions: a step computes the whole prompt, or nothing of it."""
    read: int = 0
    """Positions that have been read, computed anew or not after a preemption."""
    state: object | None = None
    """What the strategy keeps, through preemptions too."""
    rest: Any = None
    """A block of hidden states that is not full yet, [BLOCK, hidden_size]; None: none has begun."""

    @property
    def unread(self) -> range:
        """The positions whose hidden states are still to be read."""
        if self.strategy.reads == "last":
            return range(self.length - 1, self.length)
        return range(self.read, 1 if self.strategy.reads == "first" else self.length)

    def wanted(self, start: int, end: int) -> range:
        """Returns which of the positions of a chunk are to be read."""
        unread = self.unread
        first = max(start, unread.start)
        return range(first, max(first, min(end, unread.stop)))
