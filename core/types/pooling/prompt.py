"""Pooling: requests that generate nothing, and what their prompts' hidden states become."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import msgspec

from turnout.core.errors import RequestError

__all__ = ["Pooled", "PoolingParams", "PromptPooling", "Reads", "Task"]

Task = Literal["embed", "classify"]
Reads = Literal["first", "last", "all"]

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
    """Keeps so many leading numbers of a vector, which is normalized after that; None: as the model's folder
    says."""
    activation: bool = True
    """Of ``classify``: whether the head's sigmoid or softmax is applied."""
    pair: bool = False
    """Of ``classify``: whether the prompt is a pair of texts, which the head scores."""
    second_text: int = 0
    """The position of a pair's first token of the second type; 0: there is none."""

    def __post_init__(self) -> None:
        if self.task not in ("embed", "classify"):
            raise RequestError("task must be embed or classify", "task")
        if not isinstance(self.pooling, str | None):
            raise RequestError(f"pooling must be a strategy's name, not {self.pooling!r:.40}", "pooling")
        if not isinstance(self.normalize, bool | None):
            raise RequestError(f"normalize must be true or false, not {self.normalize!r:.40}", "normalize")
        if not isinstance(self.activation, bool):
            raise RequestError(f"activation must be true or false, not {self.activation!r:.40}", "activation")
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
