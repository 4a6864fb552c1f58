"""What is known of a model that pools: its head, what its folder says, and what a server is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

__all__ = [
    "NO_TEXT",
    "Activation",
    "EmbedderConfig",
    "PairTemplate",
    "PoolingFacts",
    "ScoreHead",
    "Similarity",
]

NO_TEXT = "the model generates no text: it gives embeddings or scores"
"""Why a request that generates is refused."""
Activation = Literal["sigmoid", "softmax", "none"]
Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]


@dataclass(frozen=True)
class ScoreHead:
    """The classification head of a checkpoint. The module computes it: ``score(pooled)``."""

    labels: tuple[str, ...]
    """The names of the scores, in their order."""
    pooling: str = "cls"
    """The strategy whose vector the head reads."""
    activation: Activation = "none"
    """What turns the scores of a text into probabilities; the score of a pair has a sigmoid."""
    padding: int | None = None
    """The token that the head of a decoder passes over where it ends a prompt, as transformers does; None: it
    reads the last token, whatever it is."""


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
    truncate_dim: int | None = None
    """How many leading numbers of a vector are kept where a request does not say, without normalizing it
    after that; None: all."""
    dimensions: tuple[int, ...] = ()
    """The sizes to which the model was trained to be cut; empty: any."""
    score_tokens: tuple[int, ...] = ()
    """The token whose logit scores a pair, and the one whose logit is subtracted, if there is one; empty: the
    model's head scores."""
    template_options: Mapping[str, Any] = field(default_factory=dict)
    """What a chat template is given besides messages."""
    activation: Activation | None = None
    """What turns the head's scores into probabilities, of texts and of pairs; None: as the head has it."""


class PairTemplate(msgspec.Struct, frozen=True):
    """The text around the two texts of a pair, for models that read a pair as one text."""

    plain: tuple[str, str, str]
    """What stands before the first text, between them, and after the second."""
    instructed: tuple[str, str, str, str] | None = None
    """The same with an instruction, which comes first; None: the model takes none."""


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
    """Whether the model attends in both directions, so that a step computes a whole prompt."""
    generates: bool = True
    """Whether the model generates text, too."""
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
    pair: PairTemplate | None = None
    """What makes one text of a pair; None: the tokenizer joins the tokens of both."""
