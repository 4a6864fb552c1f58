"""The spec of one rank's share of a model: a family builds the same modules from it, only narrower."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from turnout.core.errors import ConfigError
from turnout.core.types.layer_attention import LayerAttention
from turnout.core.types.model_spec import ModelSpec

__all__ = ["local_spec", "padded_vocabulary"]

INNER = ("intermediate_size", "expert_size", "shared_size")
"""Widths inside MLPs, by the names that specs give them."""


def local_spec(spec: ModelSpec, size: int, *, whole_experts: bool = False) -> ModelSpec:
    """Returns the spec of each of `size` ranks, which all have the same shape.

    Heads and the widths of MLPs are divided. KV heads are, too; where there are fewer of them than ranks,
    several ranks have the same one. The vocabulary is padded to a multiple of `size`. whole_experts: the
    widths of experts stay. Raises ConfigError, with the numbers, for a model that cannot be divided so.
    """
    changes: dict[str, Any] = {
        "heads": _divided(spec, "attention heads", spec.heads, size),
        "kv_heads": _kv_heads(spec, spec.kv_heads, size),
        "vocab_size": padded_vocabulary(spec.vocab_size, size) // size,
        "attention": tuple(_rule(spec, rule, size) for rule in spec.attention),
    }
    names = {field.name for field in fields(spec)}
    for name in INNER:
        divided = name in names and not (whole_experts and name == "expert_size")
        if divided and (width := getattr(spec, name)):
            changes[name] = _divided(spec, name, width, size)
    return replace(spec, **changes)


def padded_vocabulary(vocab_size: int, size: int) -> int:
    """Returns how many rows embeddings and heads have over all ranks."""
    return -(-vocab_size // size) * size


def _rule(spec: ModelSpec, rule: LayerAttention, size: int) -> LayerAttention:
    heads = _divided(spec, "attention heads", rule.heads, size)
    return replace(rule, heads=heads, kv_heads=_kv_heads(spec, rule.kv_heads, size))


def _kv_heads(spec: ModelSpec, count: int, size: int) -> int:
    if count % size and size % count:
        raise ConfigError(
            f"tensor_parallel_size={size} cannot divide {spec.architecture}: it has {count} KV heads, and "
            f"neither number divides the other; take {_choices(spec.heads, count)}"
        )
    return max(1, count // size)


def _divided(spec: ModelSpec, what: str, count: int, size: int) -> int:
    if count % size:
        raise ConfigError(
            f"tensor_parallel_size={size} cannot divide {spec.architecture}: its {what} are {count:,}, which "
            f"{size} does not divide; take {_choices(count)}"
        )
    return count // size


def _choices(*counts: int) -> str:
    """Words the sizes that would do, as far as these counts say."""
    fits = [
        size
        for size in range(1, min(64, *counts) + 1)
        if all(count % size == 0 or size % count == 0 for count in counts)
    ]
    return " or ".join(map(str, fits)) if len(fits) < 4 else f"one of {', '.join(map(str, fits))}"
