"""The quantization interface: what takes a linear layer's place as its weights stream in.

Nothing here imports torch; tensors appear in annotations alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from turnout.core.errors import ModelError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from turnout.core.interfaces.compute import ComputeContext

__all__ = ["Adopter", "ExportedLayer", "Exporter", "Quantizer"]


class Quantizer(ABC):
    """Replaces linear layers as their weights stream in."""

    reads_only: ClassVar[bool] = False
    """True: the quantizer only reads checkpoints of its name. ``turnout plugins show`` then does not suggest
    choosing it, and its `wants` should raise ConfigError."""
    decodes: ClassVar[bool] = False
    """True: checkpoints of its name can also be read as floating-point numbers, so that another quantization
    may be chosen for them."""
    divides: ClassVar[bool] = False
    """True: where ranks divide a layer's inputs, `convert` makes what it would have made of the whole layer,
    by `context.share`. False: such layers are refused."""

    @abstractmethod
    def wants(self, name: str, linear: nn.Linear) -> bool:
        """Says whether to convert the layer. `name` is the model family's, as `model.layers.0.mlp.down_proj`.

        A layer that is tied to an embedding is no exception: return False where the output would suffer.
        """

    @abstractmethod
    def convert(self, linear: nn.Linear, context: ComputeContext) -> nn.Module:
        """Returns the module that takes the place of `linear`, which has its weights on the target device.

        The module maps `[rows, in_features]` to `[rows, out_features]` of the same dtype, all finite; the
        engine tries the first of each shape. Keep no reference to `linear`, or its memory is not freed.
        `context`: what the layer computes with.
        """

    def convert_named(self, name: str, linear: nn.Linear, context: ComputeContext) -> nn.Module:
        """Does the same as `convert`, with the layer's name. The engine calls this one.

        By default it calls `convert`.
        """
        return self.convert(linear, context)

    def wants_embedding(self, name: str) -> bool:
        """Says whether the embedding of this name is to be converted. By default none is.

        An embedding that is tied to a converted head is not converted but reads the head's weights, where the
        head's `capabilities` have `rows`, as layers of compiled kernels do.
        """
        return False

    def convert_embedding(self, embedding: nn.Embedding, context: ComputeContext) -> nn.Module:
        """Returns what takes the embedding's place; called only where `wants_embedding` said yes."""
        return embedding

    def adopter(self, config: Mapping[str, Any]) -> Adopter:
        """Returns what builds the layers of a checkpoint that names this quantizer as its ``quant_method``.

        `config` is the checkpoint's ``quantization_config``. Raises ModelError, naming the key, for settings
        that it does not read. By default it always raises.
        """
        raise ModelError(
            f"config.json: quantization_config: quant_method = {config.get('quant_method')!r} is not a "
            "format that can be read"
        )

    def exporter(self) -> Exporter | None:
        """Returns what stores this quantizer's layers in a checkpoint, for ``turnout quantize``.

        The command calls `wants` for each layer of a model without values (on the `meta` device), and never
        `convert`. None, the default: the layers cannot be stored, and ``turnout quantize`` refuses the
        quantizer by name.
        """
        return None


class Adopter(ABC):
    """Builds the layers of a checkpoint that was quantized beforehand."""

    embeddings: ClassVar[bool] = False
    """Whether the format stores embeddings quantized, too, so that `adopt_embedding` may be called."""
    divides: ClassVar[bool] = False
    """Whether `adopt` builds a rank's share where `context.share` says what that is: `tensors` and `like` are
    of the whole layer. False: ranks cannot divide such checkpoints."""
    kv_scales: ClassVar[Collection[str]] = ()
    """How names of tensors end that are scales of the KV cache, such as ``k_scale``: one part or more. These
    tensors are ignored, because ``--kv-cache-dtype`` says how KV is stored."""

    def held_blocks(self, context: ComputeContext) -> Collection[str]:
        """Returns the kinds of blocks, such as ``q8_0``, which `adopt` takes as weight files have them.

        Weights in other blocks are read as floating-point numbers. By default all are.
        """
        return ()

    @abstractmethod
    def adopt(
        self, name: str, tensors: Mapping[str, Tensor], like: nn.Linear, context: ComputeContext
    ) -> nn.Module:
        """Returns the layer of that name, built from all that the checkpoint has for it.

        `name` is the checkpoint's, as ``quantization_config`` has it, which may differ from the model's.
        Called for linear layers with stored tensors that an `nn.Linear` does not have; others load as usual.
        `tensors` are all of that layer's as stored, by the last part of their names, such as `weight_scale`,
        on the target device; only a `bias` is cast to `context.dtype`. `like` has the layer's shape and no
        values. Raises ModelError, naming a tensor that is missing, wrong or left over.
        """

    def adopt_embedding(
        self, name: str, tensors: Mapping[str, Tensor], like: nn.Embedding, context: ComputeContext
    ) -> nn.Module:
        """Returns the embedding of that name, which maps int64 `[tokens]` to `[tokens, embedding_dim]`.

        Not called where it is tied to an adopted head whose `capabilities` have `rows`.
        """
        raise ModelError(f"{name} is stored quantized, which only linear layers may be")


@dataclass(frozen=True)
class ExportedLayer:
    """A quantized layer as a checkpoint stores it."""

    tensors: Mapping[str, Tensor]
    """By the last part of their names, such as ``weight_scale``.

    At least one is not called ``weight``: by it, loading knows the layer as quantized. None is called
    ``bias``, which is stored as it is.
    """
    scheme: Mapping[str, object]
    """How to read the tensors, in JSON's types; `Exporter.config` gets it back. Empty: nothing to say."""


class Exporter(ABC):
    """Stores a quantizer's layers in a checkpoint, which an `Adopter` then reads."""

    quant_method: ClassVar[str]
    """The registered name of the quantizer whose `adopter` reads the checkpoint: your own, or that of a
    format such as `compressed-tensors`."""

    @abstractmethod
    def export(self, name: str, weight: Tensor) -> ExportedLayer:
        """Returns what is stored of the layer of that name, as an ``ExportedLayer(tensors, scheme)``.

        `weight` is `[out, in]` in floating point, on the CPU. Called once for each layer that the quantizer
        wants.

        - `tensors` are stored under the layer's name and their own: ``{"codes": …, "scale": …}`` becomes
          `model.layers.0.mlp.down_proj.codes` and `….scale`. At least one must not be called `weight`:
          loading recognizes a quantized layer by it. A bias is stored as it is.
        - `scheme` says how to read them, in JSON's types, and may be empty.

        From both, the adopter should build what `Quantizer.convert_named` builds from the layer.
        """

    def config(
        self, layers: Mapping[str, Mapping[str, object]], unquantized: Sequence[str]
    ) -> Mapping[str, object]:
        """Returns what ``quantization_config`` in config.json says besides ``quant_method``, in JSON's types.

        `layers` has the scheme of each exported layer, by name; `unquantized` are the linear layers that stay
        as they are. Called once, when all layers are written. By default it returns nothing.
        """
        return {}
