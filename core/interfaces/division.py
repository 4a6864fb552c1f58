"""How ranks divide a module that a family cannot build narrower: what the family declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from turnout.core.types.layer_attention import LayerAttention

__all__ = ["Cut", "Division", "PipelineParts", "Way"]


class Way(Enum):
    """What ranks do at a layer of which each has a part."""

    JOINED = "joined"
    """Each computes some outputs of a linear layer, and all get all of them."""
    SUMMED = "summed"
    """Each has its part of a linear layer's inputs already; what they put out is added up."""
    OWN_INPUTS = "own inputs"
    """Each takes its part of a linear layer's inputs; what they put out is added up."""
    TOKENS = "tokens"
    """Each has the rows of neighbouring tokens of an embedding."""
    HEAD = "head"
    """Each has the logits of neighbouring tokens; rank 0 gets all."""
    ADDED = "added"
    """What the module puts out, however it computes it, is added up."""
    SHARED = "shared"
    """The module is whole on every rank, inside one that is `ADDED`: its input is divided by the ranks."""


@dataclass(frozen=True)
class Cut:
    """A parameter of which each rank has an equal part."""

    dim: int
    """The dimension that is divided."""
    groups: int = 1
    """The dimension is so many equal groups one after another, as gates and ups are in one tensor, of each of
    which a rank has its part."""
    parts: int = 0
    """How many parts there are where they are fewer than ranks: neighbours have the same one. 0: as many."""


@dataclass(frozen=True)
class PipelineParts:
    """What the stages of a pipeline have of a module, by the names of submodules.

    The module has a method ``keep_stage(layers: range, *, first: bool, last: bool)``, which leaves a stage's
    part of it; its forward then takes ``hidden``, [tokens, hidden_size], in place of tokens' embeddings, and
    its calls of ``attend`` number that part's layers from 0 on.
    """

    layers: str
    """A list of layers, each of which takes the hidden states that the one before returns."""
    head: str
    """What makes logits of hidden states, on the last stage."""


@dataclass(frozen=True)
class Division:
    """One rank's share of a module, and how ranks compute together. Names are those of the whole module."""

    attention: tuple[LayerAttention, ...]
    """Of each layer, with the heads that one rank has."""
    cuts: Mapping[str, Cut] = field(default_factory=dict)
    """By parameter; all others are whole on every rank."""
    ways: Mapping[str, Way] = field(default_factory=dict)
    """By module."""
    pipeline: PipelineParts | None = None
    """None: the module has no stages."""
