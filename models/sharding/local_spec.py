"""The spec of one rank's share of a model: a family builds the same modules from it, only narrower."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

from turnout.core.errors import ConfigError
from turnout.core.types.layer_attention import LayerAttention
from turnout.core.types.model_spec import ModelSpec

__all__ = ["local_spec", "padded_vocabulary"]

INNER = ("intermediate_size", "expert_size", "shared_size")
"""Widths inside MLPs, by the names that specs give them."""
MOST_NAMED = 64
"""Ranks of the largest number of them that an error names."""


def local_spec(spec: ModelSpec, size: int, *, whole_experts: bool = False) -> ModelSpec:
    """Returns the spec of each of `size` ranks, which all have the same shape.

    Heads and the widths of MLPs are divided. KV heads are, too; where there are fewer of them than ranks,
    several ranks have the same one. The vocabulary is padded to a multiple of `size`. whole_experts: the
    widths of experts stay. Raises ConfigError, with the numbers, for a model that cannot be divided so.
    """
    _check(spec, size, whole_experts)
    changes: dict[str, Any] = {
        "heads": spec.heads // size,
        "kv_heads": _kv_heads(spec.kv_heads, size),
        "vocab_size": padded_vocabulary(spec.vocab_size, size) // size,
        "attention": tuple(_rule(rule, size) for rule in spec.attention),
    }
    for name, width in _widths(spec, whole_experts):
        changes[name] = width // size
    return replace(spec, **changes)


def padded_vocabulary(vocab_size: int, size: int) -> int:
    """Returns how many rows embeddings and heads have over all ranks."""
    return -(-vocab_size // size) * size


def _rule(rule: LayerAttention, size: int) -> LayerAttention:
    return replace(rule, heads=rule.heads // size, kv_heads=_kv_heads(rule.kv_heads, size))


def _kv_heads(count: int, size: int) -> int:
    return max(1, count // size)


def _widths(spec: ModelSpec, whole_experts: bool) -> Iterator[tuple[str, int]]:
    """The widths inside MLPs that are divided."""
    names = {field.name for field in fields(spec)}
    for name in INNER:
        divided = name in names and not (whole_experts and name == "expert_size")
        if divided and (width := getattr(spec, name)):
            yield name, width


def _check(spec: ModelSpec, size: int, whole_experts: bool) -> None:
    """Raises ConfigError for what `size` ranks cannot divide, with the numbers of ranks that can."""
    rules: list[ModelSpec | LayerAttention] = [spec, *spec.attention]
    whole = [("attention heads", rule.heads) for rule in rules] + list(_widths(spec, whole_experts))
    shared = [rule.kv_heads for rule in rules]

    def why_not(ranks: int) -> str:
        for what, count in whole:
            if count % ranks:
                return f"its {what} are {count:,}, which {ranks} does not divide"
        for count in shared:
            if count % ranks and ranks % count:
                return f"it has {count} KV heads, and neither number divides the other"
        return ""

    if why := why_not(size):
        fits = [str(ranks) for ranks in range(1, min(MOST_NAMED, spec.heads) + 1) if not why_not(ranks)]
        words = " or ".join(fits) if len(fits) < 4 else f"one of {', '.join(fits)}"
        raise ConfigError(
            f"tensor_parallel_size={size} cannot divide {spec.architecture}: {why}; take {words}"
        )
