"""Which classes of transformers an encoder's checkpoint is built by."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import NamedTuple, cast

from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    AutoModelForSequenceClassification,
    PreTrainedConfig,
    PreTrainedModel,
)

from turnout.models.transformers_adapter.building import model_class

__all__ = ["EncoderClass", "encoder_class"]

Classes = Mapping[type[PreTrainedConfig], type[PreTrainedModel]]


class EncoderClass(NamedTuple):
    """How an architecture is built."""

    built: type[PreTrainedModel]
    """The class: with a classification head, or the encoder alone."""
    stored: type[PreTrainedModel]
    """The class that the checkpoint is of; its other heads are left out."""
    scores: bool
    """Whether there is a classification head."""


def encoder_class(config: PreTrainedConfig, architecture: str) -> EncoderClass | None:
    """Returns how an architecture is built; None: transformers has no such encoder of text."""
    causal, body = model_class(config), _class(AutoModel, config)
    if causal is not None and causal.__name__ == architecture:  # GPT2LMHeadModel, which is pretrained so, too
        return None
    if body is None or not _reads_text(config, body):
        return None
    for auto in (
        AutoModelForSequenceClassification,
        AutoModel,
        AutoModelForMaskedLM,
        AutoModelForPreTraining,
    ):
        found = _class(auto, config)
        if found is not None and found.__name__ == architecture:
            scores = auto is AutoModelForSequenceClassification
            return EncoderClass(found if scores else body, found, scores)
    return None


def _class(auto: type, config: PreTrainedConfig) -> type[PreTrainedModel] | None:
    known = cast(Classes, auto._model_mapping)  # type: ignore[attr-defined]  # of transformers' auto classes
    found = known[type(config)] if type(config) in known else None  # noqa: SIM401  # its `get` differs
    return found if isinstance(found, type) else None


def _reads_text(config: PreTrainedConfig, body: type[PreTrainedModel]) -> bool:
    if config.is_encoder_decoder or getattr(config, "is_decoder", False):
        return False
    takes = signature(body.forward).parameters
    return config.get_text_config() is config and hasattr(config, "vocab_size") and "input_ids" in takes
