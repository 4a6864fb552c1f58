"""What layers declare of their attention, and what a model asks of KV backends by it."""

from __future__ import annotations

from dataclasses import replace

from turnout.core.types.layer_attention import LayerAttention
from turnout.models.families.qwen2 import Qwen2
from turnout.models.random.shapes import SHAPES, config_of

PLAIN = LayerAttention(heads=6, kv_heads=2, key_dim=64, value_dim=64)
SPEC = Qwen2().spec(config_of(SHAPES["m2"], "qwen2"))


def test_a_layer_that_gives_shapes_alone_asks_for_nothing() -> None:
    assert PLAIN.features() == frozenset()
    assert PLAIN.effective_scale == 0.125
    assert PLAIN.kv_numbers == 2 * 2 * 64


def test_what_a_layer_asks_for_has_the_names_of_its_fields() -> None:
    rule = replace(PLAIN, window=8, softcap=50.0, scale=1.0, sinks=True, value_dim=32)
    assert rule.features() == {"window", "softcap", "scale", "sinks", "value_dim"}
    assert rule.effective_scale == 1.0
    assert rule.kv_numbers == 2 * (64 + 32)


def test_a_layer_that_reads_anothers_keys_and_values_stores_none() -> None:
    assert replace(PLAIN, kv_from=0).kv_numbers == 0


def test_values_that_lie_in_the_keys_are_not_stored() -> None:
    rule = LayerAttention(heads=16, kv_heads=1, key_dim=576, value_dim=512, values_in_keys=True)
    assert rule.kv_numbers == 576


def test_a_model_that_says_nothing_attends_plainly_in_all_layers() -> None:
    assert SPEC.layer_attention() == (PLAIN,) * SPEC.layers
    assert SPEC.attention_features() == frozenset()


def test_a_model_asks_for_what_any_of_its_layers_asks_for() -> None:
    rules = (PLAIN, replace(PLAIN, window=8), replace(PLAIN, kv_heads=1))
    assert replace(SPEC, layers=3, attention=rules).attention_features() == {"window", "layer_shapes"}
