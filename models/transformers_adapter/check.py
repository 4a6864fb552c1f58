"""Checks at load that a flat batch through our attention gives what a model gives for each sequence alone."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from transformers import PreTrainedConfig

from turnout.core.errors import ModelError, describe_error
from turnout.core.types.model_spec import ModelSpec
from turnout.models.transformers_adapter.attention import IMPLEMENTATION
from turnout.models.transformers_adapter.building import build_empty, parse_config, refused
from turnout.models.transformers_adapter.exchange.layers import Exchanges, exchange_layers
from turnout.models.transformers_adapter.exchange.proof import largest_difference, prove
from turnout.models.transformers_adapter.llama_shape import as_decoder, has_llama_shape
from turnout.models.transformers_adapter.model import AdaptedModel, kept_wide
from turnout.models.transformers_adapter.reading import inner_width_of, read_spec
from turnout.models.transformers_adapter.rotation import fix_rotations
from turnout.models.transformers_adapter.small import shrunk
from turnout.models.transformers_adapter.trial import Trial, difference_beyond_rounding, on_one_thread

logger = logging.getLogger(__name__)

__all__ = [
    "adapted_of",
    "check_flat_batch",
    "computes_as_decoder",
    "find_exchanges",
    "flat_difference",
    "make_trial",
    "prove_exchanges",
    "read_and_try",
]

MOST = 1e-4
"""The largest difference that rounding makes, relative to the largest logit."""
TOKENS = 40
"""More than a sequence of a trial has."""


class Tried(NamedTuple):
    """What the adapter knows of a model before it builds it."""

    spec: ModelSpec
    is_decoder: bool
    """Turnout's own decoder computes what the model does."""
    exchanges: Exchanges
    """What layers of Turnout compute of it, where they do not compute all."""


def read_and_try(config: Mapping[str, Any]) -> Tried:
    """Reads a ``config.json``, and tries a small model of its kind.

    Raises ModelError for a model that cannot be served, or that a small one of its kind shows to differ.
    """
    with on_one_thread():
        spec, parsed = read_spec(config), parse_config(config)
        trial = make_trial(parsed)
        if trial is None:
            return Tried(spec, False, Exchanges())
        exchanges = find_exchanges(trial)
        return Tried(spec, computes_as_decoder(parsed, trial, spec), exchanges)


def make_trial(config: PreTrainedConfig) -> Trial | None:
    """Returns a small model with the same kinds of layers; None, with a warning: none could be made."""
    try:
        trial = Trial.of(shrunk(config))
        _ = trial.expected
    except Exception as error:  # classes of transformers raise what they like for sizes that don't fit
        logger.warning(
            "no small %s could be made to check it by: %s", config.model_type, describe_error(error)
        )
        return None
    return trial


def find_exchanges(trial: Trial) -> Exchanges:
    """Returns which modules are exchanged: each was tried alone, and all together in a flat batch.

    Raises ModelError as `check_flat_batch` does, for what is left without an exchange.
    """
    found = prove_exchanges(trial)
    try:
        check_flat_batch(trial, found)
    except ModelError as error:
        if not found.forms:
            raise
        check_flat_batch(trial, found.without_forms())
        logger.warning("norms and MLPs stay transformers' own, though Turnout's fit one by one: %s", error)
        return found.without_forms()
    return found


def prove_exchanges(trial: Trial) -> Exchanges:
    """Returns which modules may be exchanged, each tried alone."""
    seen = trial.watched
    return prove(trial.model, seen.kept, kept_wide(trial.model), seen.siblings)


def check_flat_batch(trial: Trial, exchanges: Exchanges) -> None:
    """Raises ModelError unless a flat batch gives what each sequence gives alone."""
    found = difference_beyond_rounding(trial, lambda each: flat_difference(each, exchanges), MOST)
    if found > MOST:
        raise refused(
            f"{trial.config.model_type} computes several sequences in one batch otherwise than each alone: "
            f"logits differ by {found:.1e} of the largest; its layers look at other tokens beside attention, "
            "or by another rule"
        )


def flat_difference(trial: Trial, exchanges: Exchanges) -> float:
    """Returns the largest difference of logits. Raises ModelError where a flat batch cannot be computed."""
    try:
        return largest_difference(trial.flat(adapted_of(trial, exchanges)), trial.expected)
    except Exception as error:  # models raise what they like
        raise refused(
            f"{type(trial.model).__name__} cannot compute several sequences as one flat batch: "
            f"{describe_error(error)}"
        ) from error


def computes_as_decoder(config: PreTrainedConfig, trial: Trial, spec: ModelSpec) -> bool:
    """Says whether Turnout's decoder computes what the model does, at the first positions and at the last.

    config, spec: of the large model; trial: of a small one. All its layers are tried, narrow ones, because
    layers may differ by their numbers; and late positions, because queries may be scaled by them.
    """
    if not _is_decoder(trial, spec):
        return False
    rules = None if spec.attention else trial.rules[:1] * spec.layers  # all alike: no dry run tells more
    return _is_decoder(Trial.of(shrunk(config, num_hidden_layers=spec.layers), rules=rules), spec)


def _is_decoder(trial: Trial, spec: ModelSpec) -> bool:
    config = trial.config
    small = ModelSpec(
        **{
            **vars(spec),
            "vocab_size": config.vocab_size,
            "hidden_size": config.hidden_size,
            "intermediate_size": inner_width_of(config),
            "layers": len(trial.rules),
            "heads": trial.rules[0].heads,
            "kv_heads": trial.rules[0].kv_heads,
            "head_dim": trial.rules[0].key_dim,
        }
    )
    if not has_llama_shape(trial.model, small):
        return False
    starts = (0, max(0, spec.max_positions - TOKENS))
    return difference_beyond_rounding(trial, partial(_decoder_difference, small, starts), MOST) <= MOST


def _decoder_difference(spec: ModelSpec, starts: Sequence[int], trial: Trial) -> float:
    decoder, adapted = as_decoder(trial.model, spec), adapted_of(trial, Exchanges())
    trial.fill(decoder)
    return max(largest_difference(trial.flat(decoder, start), trial.flat(adapted, start)) for start in starts)


def adapted_of(trial: Trial, exchanges: Exchanges) -> AdaptedModel:
    """Returns the model as it is served, with the trial's weights."""
    model = build_empty(trial.config, IMPLEMENTATION)
    fix_rotations(model)
    exchange_layers(model, exchanges)
    trial.fill(model)
    if empty := [name for name, value in model.state_dict().items() if value.is_meta]:
        raise ModelError(f"the check of {type(model).__name__} found no values for {empty[0]}")
    return AdaptedModel(model, [rule.kv_from for rule in trial.rules])
