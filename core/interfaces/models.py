"""The model interface: how a family reads a config, builds a module and names its weights.

Nothing here imports torch; tensors appear in annotations alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from torch import Tensor, nn

    from turnout.core.interfaces.attention import Attend
    from turnout.core.types.model_spec import ModelSpec

__all__ = ["ModelFamily", "PicksRows"]


class PicksRows(ABC):
    """A model that computes what follows its last attention for those rows alone that somebody wants.

    Of a prompt that is usually its last token. Other models are called without `rows`.
    """

    @abstractmethod
    def forward(
        self, tokens: Tensor, positions: Tensor, attend: Attend, rows: Tensor | None = None
    ) -> Tensor:
        """As `ModelFamily.build` says, but hidden [rows, hidden_size] where `rows` says which: int64
        [rows], ascending. None: all."""


class ModelFamily(ABC):
    """A model architecture: how to read its config, build it and name its weights."""

    architectures: ClassVar[tuple[str, ...]]
    """The values of ``architectures`` in ``config.json`` that this family builds."""

    @abstractmethod
    def spec(self, config: Mapping[str, Any]) -> ModelSpec:
        """Read ``config.json``; raises ModelError for what the family does not support."""

    @abstractmethod
    def build(self, spec: ModelSpec) -> nn.Module:
        """The module, built on whatever device and dtype the caller made current.

        ``forward(tokens, positions, attend) -> hidden``: tokens and positions int64 [tokens], hidden
        [tokens, hidden_size] after the final norm; ``logits(hidden) -> [rows, vocab_size]``.
        """

    def rename(self, key: str) -> str | None:
        """A checkpoint's tensor name to the module's; None: skip the tensor."""
        return key
