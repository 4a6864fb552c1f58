"""A model that attends in a way which the KV backend does not follow is refused at start-up, by name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from turnout.core.errors import ConfigError
from turnout.core.interfaces.kv import KVBackend
from turnout.core.registry.registry import Registry
from turnout.core.types.layer_attention import ATTENTION_FEATURES, NOT_CAUSAL, LayerAttention
from turnout.plugins.kv_backends.paged.backend import Paged
from turnout.runner.attention_features import MEANINGS, check_attention
from turnout.testing.toy.attention import toy_spec

WINDOWED = LayerAttention(2, 1, 8, 8, window=4, scale=0.5)
SPEC = replace(toy_spec(), attention=(WINDOWED, WINDOWED))


class Plain(KVBackend):
    """A backend of a third party, from before layers had rules."""

    cache = attention = None  # type: ignore[assignment]


def test_it_names_the_backend_the_features_and_those_backends_that_follow_them() -> None:
    with pytest.raises(ConfigError) as error:
        check_attention(Registry.load(), Plain(), SPEC)  # type: ignore[abstract]
    message = str(error.value)
    assert "Plain" in message and "AttentionToy" in message
    assert "windows (window)" in message and "(scale)" in message
    assert "contiguous or paged" in message or "paged or contiguous" in message


def test_a_backend_that_follows_all_is_taken_and_a_plain_model_by_any() -> None:
    check_attention(Registry.load(), Paged(), SPEC)
    check_attention(Registry.load(), Plain(), toy_spec())  # type: ignore[abstract]


def test_every_feature_has_a_meaning() -> None:
    assert set(MEANINGS) == ATTENTION_FEATURES | {NOT_CAUSAL}
