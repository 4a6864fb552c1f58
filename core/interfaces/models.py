"""The model interface: how a family reads a config, builds a module and names its weights.

Nothing here imports torch; tensors appear in annotations alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from torch import nn

    from turnout.core.interfaces.division import Division
    from turnout.core.types.model_spec import ModelSpec
    from turnout.core.types.placement import Renamed

__all__ = ["ModelCapabilities", "ModelFamily"]


@dataclass(frozen=True)
class ModelCapabilities:
    """What a family's module can do beyond what `ModelFamily.build` says.

    The module declares it by an attribute ``capabilities``; without one, it can do nothing more.
    """

    picks_rows: bool = False
    """Its forward takes a fourth argument, ``rows: Tensor | None = None``, int64 [rows], ascending, and
    returns hidden [rows, hidden_size] of those rows alone; None: of all. So it computes what follows its last
    attention only for rows whose logits are wanted, in a prompt usually the last. Other models are called
    without."""
    token_types: bool = False
    """Its forward takes ``token_types``, int64 [tokens], by that name: 1 in a pair's second text, else 0."""
    float32: tuple[str, ...] = ()
    """Parts of names, as ``mlp.gate`` is one of ``layers.0.mlp.gate.weight``. Parameters of these names stay
    in float32, whatever the model computes in."""
    float32_in_float16: tuple[str, ...] = ()
    """The same where the model computes in float16, whose range is too small for these."""
    siblings: tuple[tuple[str, ...], ...] = ()
    """Names of linear layers whose forwards are given the same tensor, in groups: each group is computed as
    one layer. Of layers that Turnout shares, it knows by itself."""


class ModelFamily(ABC):
    """A model architecture: how to read its config, build it and name its weights.

    A server builds one object of the family, and calls all its methods: what `spec` keeps, `build` finds.
    """

    architectures: ClassVar[tuple[str, ...]]
    """The values of ``architectures`` in ``config.json`` that this family builds. Two families for one
    architecture are an error."""
    checkpoints: ClassVar[tuple[str, ...]] = ()
    """Some checkpoints that it serves, as ``OWNER/NAME`` on the hub, for ``turnout plugins show``."""

    @abstractmethod
    def spec(self, config: Mapping[str, Any]) -> ModelSpec:
        """Reads ``config.json``. Raises ModelError for what the family does not support.

        A wrong answer is worse than none. What ModelSpec has no field for, `build` reads from
        ``spec.config``, or the family returns a subclass of ModelSpec with fields of its own.
        """

    @abstractmethod
    def build(self, spec: ModelSpec) -> nn.Module:
        """Returns the module, on the device and in the dtype that the caller made current.

        spec: what the method `spec` returned; its ``config`` is the checkpoint's ``config.json``.

        Parameters are built without storage and filled later. Create buffers on an explicit device, with
        their values: the checkpoint has none. The batch is flat: all sequences of the step one after another.
        The module has

        - ``forward(tokens, positions, attend)``, with tokens and positions int64 `[tokens]`, which returns
          hidden states `[tokens, hidden_size]` after the final norm and calls ``attend(layer, q, k, v)`` for
          attention,
        - ``logits(hidden)``, which returns `[rows, vocab_size]`.
        """

    def parameter_count(self, spec: ModelSpec) -> int | None:
        """How many parameters `build` makes; None: unknown.

        A checkpoint whose files are too small for so many is refused before anything is built.
        """
        return None

    def division(self, spec: ModelSpec, parts: int, stages: int) -> Division | None:
        """Returns how ranks divide the module that `build` makes of `spec`: each of `stages` groups of layers
        into `parts`. None: the module is Turnout's own decoder, or cannot be divided.

        Asked where there are several ranks, on each of them. Raises ConfigError, naming what cannot be
        divided.
        """
        return None

    def rename(self, key: str) -> Renamed:
        """Turns a checkpoint's tensor name into the module's; None: the tensor is skipped.

        Where a tensor is not the module's as it is, a `Placement`, or several: it may be split, transposed,
        changed otherwise, or be a part of a larger one. By default names stay.
        """
        return key
