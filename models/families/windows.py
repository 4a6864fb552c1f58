"""Which layers attend to a window, as configs say it, and the rules that follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from turnout.core.types.layer_attention import LayerAttention
from turnout.core.types.model_spec import ModelSpec
from turnout.models.config_reader import ConfigReader

__all__ = ["FULL", "SLIDING", "layer_kinds", "with_windows"]

FULL, SLIDING = "full_attention", "sliding_attention"


def layer_kinds(reader: ConfigReader, default: Sequence[str]) -> tuple[str, ...]:
    """Returns `FULL` or `SLIDING` for each layer: what ``layer_types`` says, else `default`."""
    return reader.each_of("layer_types", (FULL, SLIDING), len(default)) or tuple(default)


def with_windows(
    spec: ModelSpec, kinds: Sequence[str], window: int | None, like: LayerAttention | None = None
) -> ModelSpec:
    """Returns `spec` with a rule for each layer: as `like`, and in those that are `SLIDING` with the window.

    like: None: plain attention. A window that no sequence outgrows is none.
    """
    plain = LayerAttention(spec.heads, spec.kv_heads, spec.head_dim, spec.head_dim)
    rule = like or plain
    narrow = replace(rule, window=window if window and window < spec.max_positions else None)
    rules = tuple(narrow if kind == SLIDING else rule for kind in kinds)
    return spec if all(each == plain for each in rules) else replace(spec, attention=rules)
