"""The shape of an encoder, beyond what all models have."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.core.types.model_spec import ModelSpec

__all__ = ["ACTIVATIONS", "EncoderSpec"]

ACTIVATIONS = ("gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "relu", "silu", "tanh")
"""Those of MLPs and heads, by the names that configs give them."""


@dataclass(frozen=True)
class EncoderSpec(ModelSpec):
    """A `ModelSpec` of an encoder, which names the epsilon of its layer norms `norm_eps`."""

    activation: str = "gelu"
    """What is inside an MLP, one of `ACTIVATIONS`."""
    types: int = 0
    """How many types a token may have, as the first and the second text of a pair; 0: none are embedded."""
    first_position: int = 0
    """The number of the first position in the table of positions (RoBERTa leaves out those before it)."""
    embedding_size: int = 0
    """How wide embeddings are, where a linear layer widens them to `hidden_size`; 0: as wide as that."""
    norm_bias: bool = True
    """Whether layer norms have a bias."""
