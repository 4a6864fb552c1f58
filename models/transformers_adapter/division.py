"""Divides a model of transformers by its own plans, once a small one has shown that they hold."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from transformers import PreTrainedConfig, PreTrainedModel

from turnout.core.errors import ConfigError, describe_error
from turnout.core.interfaces.division import Division
from turnout.core.types.layer_attention import LayerAttention
from turnout.core.types.model_spec import ModelSpec
from turnout.models.transformers_adapter.attention import IMPLEMENTATION
from turnout.models.transformers_adapter.building import build_empty
from turnout.models.transformers_adapter.check import adapted_of
from turnout.models.transformers_adapter.exchange.layers import Exchanges
from turnout.models.transformers_adapter.exchange.places import without_numbers
from turnout.models.transformers_adapter.ranks.plans import stage_names, tensor_plan, with_shared_keys
from turnout.models.transformers_adapter.ranks.trial import RANKS, Heads, try_parts, try_stages
from turnout.models.transformers_adapter.small import HEADS, shrunk
from turnout.models.transformers_adapter.trial import Trial, difference_beyond_rounding, on_one_thread

__all__ = ["divide"]

MOST = 1e-5
"""The largest difference that ranks make by adding up in another order, relative to the largest logit."""


def divide(
    causal: PreTrainedModel,
    config: PreTrainedConfig,
    spec: ModelSpec,
    exchanges: Exchanges,
    parts: int,
    stages: int,
) -> Division:
    """Returns how ranks divide `causal`, the whole model without storage, with layers of ours in place.

    Raises ConfigError where transformers has no plan, or a small model that is divided by it differs.
    """
    attention = spec.layer_attention()
    asked = f"tensor_parallel_size={parts}" if parts > 1 else f"pipeline_parallel_size={stages}"
    with on_one_thread():
        try:
            few = any(rule.kv_heads % parts for rule in attention)
            trial = Trial.of(_small(config, spec, few=few))
            _ = trial.expected
            keys = _key_parameters(config) if few else frozenset[str]()
        except Exception as error:  # classes of transformers raise what they like for sizes that don't fit
            raise _refused(
                asked, causal, f"no small one could be made to try it: {describe_error(error)}"
            ) from error
        pipeline = None
        if stages > 1:
            names = stage_names(causal, spec.layers)
            if names is None:
                raise _refused(
                    f"pipeline_parallel_size={stages}",
                    causal,
                    "transformers has no plan of its stages (pp_plan)",
                )
            _check_stages(trial, causal, exchanges, stages)
            pipeline = names.parts
        if parts == 1:
            return Division(attention, pipeline=pipeline)
        plan = with_shared_keys(tensor_plan(causal, spec.vocab_size), keys, attention, parts)
        heads = _checked_heads(trial, causal, exchanges, spec, parts, keys)
        return Division(_local(attention, trial.rules, heads, spec, parts), plan.cuts, plan.ways, pipeline)


def _small(config: PreTrainedConfig, spec: ModelSpec, *, few: bool) -> PreTrainedConfig:
    """Returns a small config that two ranks can divide where they can divide the large one.

    few: there are fewer KV heads than ranks.
    """
    if hasattr(config, "qk_rope_head_dim"):  # latent attention has keys for every head
        return shrunk(config)
    if few:
        return shrunk(config, num_key_value_heads=1)
    return shrunk(config, num_key_value_heads=HEADS if spec.kv_heads == spec.heads else RANKS)


def _key_parameters(config: PreTrainedConfig) -> frozenset[str]:
    """Returns the parameters that are the larger, the more KV heads there are, without numbers of layers."""
    one, two = (
        {
            name: parameter.shape
            for name, parameter in build_empty(
                shrunk(config, num_key_value_heads=count), IMPLEMENTATION
            ).named_parameters()
        }
        for count in (1, 2)
    )
    return frozenset(without_numbers(name) for name, shape in one.items() if two[name] != shape)


def _check_stages(trial: Trial, causal: PreTrainedModel, exchanges: Exchanges, stages: int) -> None:
    asked = f"pipeline_parallel_size={stages}"

    def difference_of(each: Trial) -> float:
        first, second, whole = [adapted_of(each, exchanges) for _ in range(3)]
        return try_stages(each, (first, second), whole)

    try:
        difference = difference_beyond_rounding(trial, difference_of, MOST)
    except Exception as error:  # models raise what they like
        raise _refused(asked, causal, f"a small one in two stages fails: {describe_error(error)}") from error
    if not difference <= MOST:
        raise _refused(
            asked, causal, f"a small one in two stages differs by {difference:.0e} of the largest logit"
        )


def _checked_heads(
    trial: Trial,
    causal: PreTrainedModel,
    exchanges: Exchanges,
    spec: ModelSpec,
    parts: int,
    keys: Collection[str],
) -> Sequence[Heads]:
    """Returns the heads of a rank of two, in a small model. keys: as `with_shared_keys` takes them."""
    asked, heads = f"tensor_parallel_size={parts}", list[Heads]()

    def difference_of(each: Trial) -> float:
        models = [adapted_of(each, exchanges) for _ in range(RANKS)]
        vocab_size: int = each.config.vocab_size
        plan = with_shared_keys(tensor_plan(models[0].causal, vocab_size), keys, each.rules, RANKS)
        tried = try_parts(each, models, plan, replace(spec, vocab_size=vocab_size))
        heads[:] = tried.heads
        return tried.difference

    try:
        difference = difference_beyond_rounding(trial, difference_of, MOST)
    except ConfigError:
        raise
    except Exception as error:  # as above
        raise _refused(asked, causal, f"a small one on two ranks fails: {describe_error(error)}") from error
    if not difference <= MOST:
        raise _refused(
            asked, causal, f"a small one on two ranks differs by {difference:.0e} of the largest logit"
        )
    return heads


def _local(
    attention: Sequence[LayerAttention],
    small: Sequence[LayerAttention],
    heads: Sequence[Heads],
    spec: ModelSpec,
    parts: int,
) -> tuple[LayerAttention, ...]:
    """Returns the rules of a rank: transformers' plans divide the heads of all layers, or of none."""
    if all(seen.queries == rule.heads for seen, rule in zip(heads, small, strict=True)):
        return tuple(attention)
    for rule in attention:
        if rule.heads % parts:
            raise ConfigError(
                f"tensor_parallel_size={parts} cannot divide {spec.architecture}: its attention heads are "
                f"{rule.heads}, which {parts} does not divide"
            )
        if rule.kv_heads % parts and parts % rule.kv_heads:
            raise ConfigError(
                f"tensor_parallel_size={parts} cannot divide {spec.architecture}: it has {rule.kv_heads} KV "
                "heads, and neither number divides the other"
            )
    return tuple(
        replace(rule, heads=rule.heads // parts, kv_heads=max(1, rule.kv_heads // parts))
        for rule in attention
    )


def _refused(asked: str, causal: PreTrainedModel, why: str) -> ConfigError:
    return ConfigError(
        f"{asked} cannot divide {type(causal).__name__}, which runs by transformers' modules: {why}; take "
        "replicas, or one device"
    )
