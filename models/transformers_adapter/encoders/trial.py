"""Tries a small encoder at load: a flat batch through our attention must give what each text gives alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from turnout.core.errors import ModelError, describe_error
from turnout.core.types.layer_attention import LayerAttention
from turnout.models.transformers_adapter.attention import IMPLEMENTATION
from turnout.models.transformers_adapter.building import build_empty, build_filled
from turnout.models.transformers_adapter.check import MOST
from turnout.models.transformers_adapter.encoders.classes import EncoderClass
from turnout.models.transformers_adapter.encoders.model import TYPES, AdaptedEncoder, body_of
from turnout.models.transformers_adapter.encoders.norms import exchange_norms
from turnout.models.transformers_adapter.encoders.rules import read_encoder_rules
from turnout.models.transformers_adapter.exchange.dense import DenseAttend
from turnout.models.transformers_adapter.exchange.layers import Exchanges, exchange_layers
from turnout.models.transformers_adapter.exchange.proof import largest_difference
from turnout.models.transformers_adapter.exchange.watched_linears import watched_linears
from turnout.models.transformers_adapter.rotation import fix_rotations
from turnout.models.transformers_adapter.small import shrunk
from turnout.models.transformers_adapter.trial import spread_weights

__all__ = ["EncoderTrial", "Found", "exchanged", "first_position_of", "try_encoder"]

LENGTHS = (37, 29)
POOLINGS = ("cls", "mean", "last")
"""What a classification head may read."""


class Found(NamedTuple):
    """What a trial tells."""

    skips_padding: bool
    """Positions begin behind the number of the token that pads (RoBERTa)."""
    pooling: str | None
    """The pooling whose vector the classification head reads; None: there is no head."""
    weights_read: frozenset[str]
    """The linear layers by whose weights other modules compute, by their names `without_numbers`."""
    difference: float
    """The largest difference of hidden states, relative to the largest."""


def try_encoder(config: PreTrainedConfig, of: EncoderClass) -> Found:
    """Tries a small encoder of this kind. Raises ModelError for one that shows to differ."""
    try:
        trial = EncoderTrial.of(shrunk(config), of)
        expected = trial.expected
    except ModelError:
        raise
    except Exception as error:  # classes of transformers raise what they like for sizes that don't fit
        raise ModelError(
            f"{of.stored.__name__}: no small model of its kind could be made to check it by "
            f"({describe_error(error)}); such encoders are not served"
        ) from error
    skips, difference = trial.best_positions()
    if difference > MOST:
        raise ModelError(
            f"{of.stored.__name__} computes several texts in one batch otherwise than each alone: hidden "
            f"states differ by {difference:.1e} of the largest; its layers look at other tokens beside "
            "attention, or by another rule; such encoders are not served"
        )
    pooling = trial.pooling(expected, skips) if of.scores else None
    return Found(skips, pooling, trial.weights_read, difference)


def first_position_of(config: PreTrainedConfig, *, skips_padding: bool) -> int:
    """Returns the number of the first position."""
    padding = getattr(config, "pad_token_id", None)
    return padding + 1 if skips_padding and isinstance(padding, int) else 0


def exchanged(
    config: PreTrainedConfig, of: EncoderClass, found: Found | None = None, read: frozenset[str] = frozenset()
) -> PreTrainedModel:
    """Returns the model with our layers in place, and without weights.

    read: as `Found.weights_read`, which is taken where it was found.
    """
    model = build_empty(config, IMPLEMENTATION, of.built)
    fix_rotations(model)
    exchange_layers(model, Exchanges(kept=read if found is None else found.weights_read))
    exchange_norms(model)
    return model


@dataclass(frozen=True)
class EncoderTrial:
    """A filled encoder of transformers, and the texts that it is tried with."""

    config: PreTrainedConfig
    classes: EncoderClass
    model: PreTrainedModel
    rules: tuple[LayerAttention, ...]
    texts: tuple[Tensor, ...]
    types: tuple[Tensor, ...]

    @classmethod
    def of(cls, config: PreTrainedConfig, classes: EncoderClass) -> EncoderTrial:
        """config: a small one."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = build_filled(config, "eager", classes.built)
            spread_weights(model)
            count = max(1, getattr(config, "type_vocab_size", 1) or 1)
            texts = tuple(torch.randint(3, config.vocab_size, (length,)) for length in LENGTHS)
            types = tuple(torch.randint(0, count, (length,)) for length in LENGTHS)
        mask = getattr(config, "mask_token_id", None)
        if isinstance(mask, int) and 0 <= mask < config.vocab_size:
            texts[0][5] = mask  # some models look how many a whole batch has
        rules = read_encoder_rules(config, classes.built, config.max_position_embeddings)
        return cls(config, classes, model, rules, texts, types)

    @cached_property
    @torch.no_grad()
    def expected(self) -> tuple[Tensor, ...]:
        """The hidden states of each text alone, as transformers computes them."""
        body = body_of(self.model)
        return tuple(
            body(text[None], **self._more(at)).last_hidden_state[0] for at, text in enumerate(self.texts)
        )

    @cached_property
    def weights_read(self) -> frozenset[str]:
        """As `Found.weights_read`."""
        linear = {name: layer for name, layer in self.model.named_modules() if type(layer) is nn.Linear}
        with watched_linears(linear) as watched, torch.no_grad():
            self.model(self.texts[0][None], **self._more(0))
        return watched.kept

    def best_positions(self) -> tuple[bool, float]:
        """Returns whether positions skip padding, and the difference that is left."""
        found = {}
        for skips in (False, True):
            if skips and not first_position_of(self.config, skips_padding=True):
                continue
            found[skips] = largest_difference(self.flat(skips), torch.cat(self.expected))
            if found[skips] <= MOST:
                break
        return min(found.items(), key=lambda each: each[1])

    @torch.no_grad()
    def flat(self, skips_padding: bool) -> Tensor:
        """Returns the hidden states of all texts, computed in one flat batch."""
        adapted = self.adapted(skips_padding)
        attend = DenseAttend(self.rules, len(self.texts))
        attend.lengths = LENGTHS
        positions = torch.cat([torch.arange(length) for length in LENGTHS])
        try:
            hidden: Tensor = adapted(torch.cat(self.texts), positions, attend, None, torch.cat(self.types))
        except Exception as error:  # models raise what they like
            raise ModelError(
                f"{type(self.model).__name__} cannot compute several texts as one flat batch, as they are "
                f"served: {describe_error(error)}"
            ) from error
        return hidden

    @torch.no_grad()
    def pooling(self, hidden: tuple[Tensor, ...], skips_padding: bool) -> str:
        """Returns what the classification head reads. Raises ModelError where it reads something else."""
        expected = torch.cat(
            [self.model(text[None], **self._more(at)).logits for at, text in enumerate(self.texts)]
        )
        pooled = {
            "cls": torch.stack([each[0] for each in hidden]),
            "mean": torch.stack([each.mean(0) for each in hidden]),
            "last": torch.stack([each[-1] for each in hidden]),
        }
        adapted = self.adapted(skips_padding)
        adapted.settle(self.texts[0])
        for name in POOLINGS:
            try:
                scores = adapted.score(pooled[name])
            except Exception as error:  # as above
                raise ModelError(
                    f"the head of {type(self.model).__name__} cannot be computed by itself: "
                    f"{describe_error(error)}"
                ) from error
            if scores.shape == expected.shape and largest_difference(scores, expected) <= MOST:
                return name
        raise ModelError(
            f"the head of {type(self.model).__name__} reads neither the first token nor the last nor the "
            "mean of a text; such heads are not served"
        )

    def adapted(self, skips_padding: bool) -> AdaptedEncoder:
        """Returns the model as it is served, with the trial's weights."""
        model = exchanged(self.config, self.classes, read=self.weights_read)
        model.load_state_dict(self.model.state_dict(), strict=False, assign=True)
        if empty := [name for name, value in model.state_dict().items() if value.is_meta]:
            raise ModelError(f"the check of {type(model).__name__} found no values for {empty[0]}")
        return AdaptedEncoder(model, first_position_of(self.config, skips_padding=skips_padding))

    def _more(self, at: int) -> Mapping[str, Any]:
        return {TYPES: self.types[at][None]} if self.adapted_types else {}

    @cached_property
    def adapted_types(self) -> bool:
        """Whether tokens have types."""
        return AdaptedEncoder(self.model).capabilities.token_types
