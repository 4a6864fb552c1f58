"""The attention interface: what a model calls, and what a KV backend puts behind that call.

Nothing here imports torch; tensors appear in annotations alone.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeGuard

if TYPE_CHECKING:
    from torch import Tensor

    from turnout.core.types.plan import Move, Plan, StepShape

__all__ = [
    "Attend",
    "AttentionBackend",
    "AttentionCapabilities",
    "CapturableAttention",
    "RotatingAttend",
    "captures",
    "rotates",
]


@dataclass(frozen=True)
class AttentionCapabilities:
    """Which optional methods attention has. It is called the plain way where it declares none."""

    rotates: bool = False
    """It is a `RotatingAttend`. Models whose kernels are fused use that."""
    captures: bool = False
    """It is a `CapturableAttention`. The runner uses that where steps are captured in graphs."""
    in_place: bool = False
    """It is a `turnout.kernels.layers.InPlaceAttention`. Models that compute all layers in one native call
    use that."""
    whole_texts: bool = False
    """It is a `turnout.kernels.layers.WholeTextAttention`. Encoders that are computed in one native call use
    that."""


class Attend(Protocol):
    """What a model sees of attention. A function is one, too."""

    def __call__(
        self, layer: int, q: Tensor, k: Tensor | None, v: Tensor | None, sinks: Tensor | None = None
    ) -> Tensor:
        """Writes this step's `k`, `v` and attends with `q`, by the layer's rule, each sequence to itself.

        Called once for each layer, in order. `q` is `[tokens, heads, key_dim]`, `k` `[tokens, kv_heads,
        key_dim]` and `v` `[tokens, kv_heads, value_dim]`, rotated already, in the order of the plan's chunks.
        Returns `[tokens, heads, value_dim]`, in `q`'s dtype.

        `k` and `v` are None where the layer's `LayerAttention` has `kv_from`, `v` where it has
        `values_in_keys`. `sinks` is float32 `[heads]` where it has `sinks`, and is given to no other layer.
        """
        ...


class AttentionBackend(Attend, Protocol):
    """The device half of a KV backend: it owns the KV tensors and is the only reader of block tables."""

    capabilities: AttentionCapabilities = AttentionCapabilities()
    summary: Sequence[str] = ()
    """Lines for the start-up summary: which of its ways of computing it chose, and why."""

    @abstractmethod
    def move(self, moves: Sequence[Move]) -> None:
        """Called first in each step: copies inside the pool, to host memory and back, in order."""

    @abstractmethod
    def bind(self, plan: Plan) -> None:
        """Called then, once for all layers: builds what the step's attention calls need, such as slots and
        tables.
        """


class RotatingAttend(Attend, Protocol):
    """Attention that rotates queries and keys itself, in the pass that writes keys and values."""

    @abstractmethod
    def rotating(
        self,
        layer: int,
        q: Tensor,
        k: Tensor | None,
        v: Tensor | None,
        cos: Tensor,
        sin: Tensor,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """Computes the same as `Attend`, from q and k that are not rotated yet; q is overwritten.

        cos, sin: [tokens, 1, key_dim], the same in both halves of a head.
        """


class CapturableAttention(AttentionBackend, Protocol):
    """An attention backend whose steps may be captured in a graph and replayed."""

    @abstractmethod
    def shape(self, plan: Plan) -> StepShape | None:
        """Steps of equal shape may replay one captured graph; None: this step is not captured.

        Tokens of a chunk lie where they would in a step that is not padded.
        """

    @abstractmethod
    def bind_to(self, plan: Plan, shape: StepShape) -> Attend:
        """Called in place of `bind`, for a plan of this shape; returns the same object for equal shapes.

        That object attends. It reads of the plan only what is in device memory, which stays in place from one
        call to the next: that is what a graph replays. Tokens beyond those of the plan are padding, and their
        keys and values are written nowhere.
        """


_PLAIN = AttentionCapabilities()


def rotates(attend: Attend) -> TypeGuard[RotatingAttend]:
    """Says whether `attend` declares that it rotates."""
    capabilities: AttentionCapabilities = getattr(attend, "capabilities", _PLAIN)
    return capabilities.rotates


def captures(attention: AttentionBackend) -> TypeGuard[CapturableAttention]:
    """Says whether `attention` declares that its steps may be captured."""
    capabilities: AttentionCapabilities = getattr(attention, "capabilities", _PLAIN)
    return capabilities.captures
