"""How one layer attends: what a model declares, and what KV backends and kernels must do for it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ATTENTION_FEATURES", "NOT_CAUSAL", "AttentionFeature", "LayerAttention"]

AttentionFeature = str
"""What a layer asks for beyond plain attention, by the name of a field of `LayerAttention`."""

ATTENTION_FEATURES: frozenset[AttentionFeature] = frozenset(
    (
        *("scale", "window", "softcap", "sinks"),
        *("value_dim", "layer_shapes", "kv_from", "values_in_keys"),
    )
)
"""All features of decoders: what a KV backend declares that follows every rule."""
NOT_CAUSAL: AttentionFeature = "not_causal"
"""What the layers of an encoder ask for. Only what attends without KV memory declares it: a position's keys
and values depend on later ones, so that none is ever final before its sequence is complete."""


@dataclass(frozen=True)
class LayerAttention:
    """The rule of one layer: its shape, what it may see, and how scores become weights.

    A layer that gives shapes alone attends plainly: causally, to all earlier positions of its sequence, with
    scores scaled by ``key_dim ** -0.5``.
    """

    heads: int
    """How many heads of queries; a multiple of ``kv_heads``."""
    kv_heads: int
    """How many heads of keys and of values."""
    key_dim: int
    """The width of a head of queries and keys."""
    value_dim: int
    """The width of a head of values, and of the result."""
    scale: float | None = None
    """What scores are multiplied by; None: ``key_dim ** -0.5``."""
    window: int | None = None
    """How many positions a query sees, its own among them, and where it is not `causal` as many to the other
    side; None: all."""
    softcap: float | None = None
    """Scaled scores x become ``softcap * tanh(x / softcap)`` (Gemma 2); None: they stay."""
    sinks: bool = False
    """Whether each head has a learned score that takes part in the softmax and has no value (gpt-oss). The
    model passes these scores with each call."""
    kv_from: int | None = None
    """The earlier layer whose keys and values this layer reads, having none of its own; None: its own."""
    values_in_keys: bool = False
    """Whether values are the first ``value_dim`` numbers of the keys, so that keys alone are stored: the
    compressed form of multi-head latent attention (DeepSeek-V2, https://arxiv.org/abs/2405.04434)."""
    causal: bool = True
    """Whether a query sees no position after its own. False: that of an encoder, which sees both sides."""

    @property
    def effective_scale(self) -> float:
        """What scores are multiplied by."""
        return float(self.key_dim**-0.5) if self.scale is None else self.scale

    @property
    def kv_numbers(self) -> int:
        """How many numbers a position's keys and values take in this layer."""
        if self.kv_from is not None:
            return 0
        return self.kv_heads * (self.key_dim + (0 if self.values_in_keys else self.value_dim))

    @property
    def kv_vectors(self) -> int:
        """How many vectors a position's keys and values are in this layer: one for each KV head and side."""
        if self.kv_from is not None:
            return 0
        return self.kv_heads * (1 if self.values_in_keys else 2)

    def features(self) -> frozenset[AttentionFeature]:
        """Returns what this layer asks for beyond plain attention: names of fields, and ``value_dim`` where
        it differs from ``key_dim``.
        """
        asked = {
            name for name in ("scale", "window", "softcap", "kv_from") if getattr(self, name) is not None
        }
        asked |= {name for name in ("sinks", "values_in_keys") if getattr(self, name)}
        if self.value_dim != self.key_dim:
            asked.add("value_dim")
        if not self.causal:
            asked.add(NOT_CAUSAL)
        return frozenset(asked)
