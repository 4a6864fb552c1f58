"""Checks that a flat batch through our attention gives what a model gives for each sequence alone."""

from __future__ import annotations

import logging

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from turnout.core.errors import ModelError, describe_error
from turnout.core.types.layer_attention import LayerAttention
from turnout.models.transformers_adapter.attention import IMPLEMENTATION
from turnout.models.transformers_adapter.building import build_empty, build_filled
from turnout.models.transformers_adapter.dense import DenseAttend
from turnout.models.transformers_adapter.exchange import exchange_layers
from turnout.models.transformers_adapter.model import AdaptedModel
from turnout.models.transformers_adapter.rotation import fix_rotations
from turnout.models.transformers_adapter.rules import read_rules
from turnout.models.transformers_adapter.small import shrunk

logger = logging.getLogger(__name__)

__all__ = ["check_flat_batch", "difference", "spread_weights"]

MOST = 1e-4
"""The largest difference that rounding makes, relative to the largest logit."""

STEPS = ((21, 11), (16, 18))
"""Tokens of two sequences in each step: the second step reads keys of the first."""


def check_flat_batch(config: PreTrainedConfig) -> None:
    """Raises ModelError unless a small model with the same kinds of layers computes a flat batch rightly."""
    try:
        found = difference(shrunk(config))
    except ModelError:
        raise
    except Exception as error:  # classes of transformers raise what they like for sizes that don't fit
        logger.warning(
            "no small %s could be made to check it by: %s", config.model_type, describe_error(error)
        )
        return
    if found > MOST:
        raise ModelError(
            f"{config.model_type} computes several sequences in one batch otherwise than each alone: logits "
            f"differ by {found:.1e} of the largest; its layers look at other tokens beside attention, or by "
            "another rule; such models are not served"
        )


@torch.no_grad()
def difference(config: PreTrainedConfig, seed: int = 0) -> float:
    """Returns the largest difference of logits, relative to the largest, of a model of random weights."""
    rules = read_rules(config, config.get_text_config().max_position_embeddings)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        eager = build_filled(config, "eager")
        spread_weights(eager)
        lengths = [sum(step[i] for step in STEPS) for i in range(2)]
        sequences = [torch.randint(3, config.get_text_config().vocab_size, (n,)) for n in lengths]
    expected = torch.cat([eager(each[None], use_cache=False).logits[0] for each in sequences])
    try:
        found = _flat(_adapted(config, eager, rules), sequences, rules)
    except Exception as error:  # models raise what they like
        raise ModelError(
            f"{type(eager).__name__} cannot compute several sequences as one flat batch, as they are "
            f"served: {describe_error(error)}"
        ) from error
    return float((found - expected).abs().max() / expected.abs().max())


@torch.no_grad()
def spread_weights(model: PreTrainedModel) -> None:
    """Draws weights that make tokens and positions matter; those a model starts with are too small."""
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.normal_(0, 0.2)
        elif parameter.dim() == 1:
            parameter.add_(torch.randn_like(parameter) * 0.05)
    model.tie_weights()


def _adapted(
    config: PreTrainedConfig, filled: PreTrainedModel, rules: tuple[LayerAttention, ...]
) -> AdaptedModel:
    """Returns the model as it is served, with the weights of another."""
    model = build_empty(config, IMPLEMENTATION)
    fix_rotations(model)
    exchange_layers(model)
    model.load_state_dict(filled.state_dict(), strict=False, assign=True)
    if empty := [name for name, value in model.state_dict().items() if value.is_meta]:
        raise ModelError(f"the check of {type(model).__name__} found no values for {empty[0]}")
    return AdaptedModel(model, [rule.kv_from for rule in rules])


def _flat(model: AdaptedModel, sequences: list[Tensor], rules: tuple[LayerAttention, ...]) -> Tensor:
    """Returns logits of all tokens, sequence after sequence, computed in the steps of `STEPS`."""
    attend, done = DenseAttend(rules, len(sequences)), [0] * len(sequences)
    out: list[list[Tensor]] = [[] for _ in sequences]
    for step in STEPS:
        spans = [range(start, start + count) for start, count in zip(done, step, strict=True)]
        tokens = torch.cat(
            [each[span.start : span.stop] for each, span in zip(sequences, spans, strict=True)]
        )
        positions = torch.cat([torch.arange(span.start, span.stop) for span in spans])
        attend.lengths = step
        logits = model.logits(model(tokens, positions, attend))
        for rows, part in zip(out, torch.split(logits, list(step)), strict=True):
            rows.append(part)
        done = [span.stop for span in spans]
    return torch.cat([torch.cat(rows) for rows in out])
