"""The attention interface: what a model calls, and what a KV backend puts behind that call.

Nothing here imports torch; tensors appear in annotations alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from turnout.core.types.plan import Move, Plan, StepShape

__all__ = ["Attend", "AttentionBackend", "CapturableAttention", "RotatingAttend"]


class Attend(Protocol):
    """What a model sees of attention."""

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Write this step's `k`, `v` and attend with `q`, causally, each sequence to itself.

        q: [tokens, heads, head_dim]; k, v: [tokens, kv_heads, head_dim], rotated already.
        Returns [tokens, heads, head_dim], in q's dtype.
        """
        ...


class RotatingAttend(ABC):
    """An attention backend that rotates queries and keys itself, in the pass that writes keys and values.

    Models whose kernels are fused ask for that; others call it as any `Attend`.
    """

    @abstractmethod
    def rotating(self, layer: int, q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """As `Attend`, but q and k are not rotated yet; q is overwritten.

        cos, sin: [tokens, 1, head_dim], the same in both halves of a head.
        """


class AttentionBackend(Attend, Protocol):
    """Device half of a KV backend: owns the KV tensors, the only reader of block tables."""

    def move(self, moves: Sequence[Move]) -> None:
        """Carry the host half's copies out, in order."""
        ...

    def bind(self, plan: Plan) -> None:
        """Build what the step's attention calls need, once for all layers."""
        ...

    def shape(self, plan: Plan) -> Hashable | None:
        """Asked only of a `CapturableAttention`, which says what it means; None for all others."""
        ...


class CapturableAttention(ABC):
    """An attention backend whose steps may be captured in a graph and replayed."""

    @abstractmethod
    def shape(self, plan: Plan) -> StepShape | None:
        """Steps of equal shape may replay one captured graph; None: this one is not captured.

        Tokens of a chunk lie where they would in a step that is not padded.
        """

    @abstractmethod
    def bind_to(self, plan: Plan, shape: StepShape) -> Attend:
        """In place of `bind`, for a plan of this shape: what attends, the same object for equal shapes.

        It reads of the plan only what is in device memory, which stays in place from one call to the next:
        that is what a graph replays. Tokens beyond those of the plan are nobody's, and written nowhere.
        """
