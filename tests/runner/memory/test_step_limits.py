"""How long a text may be: as the model's positions, its folder and the configuration let it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from turnout.config import EngineConfig
from turnout.core.errors import ConfigError
from turnout.runner.step_limits import context_length
from turnout.testing.toy.attention import toy_spec

SPEC = replace(toy_spec(), max_positions=512)


@pytest.mark.parametrize(
    ("given", "folder", "expected"),
    [(None, None, 512), (None, 128, 128), (64, 128, 64), (None, 4096, 512), (256, None, 256)],
)
def test_the_least_of_the_limits_holds(given: int | None, folder: int | None, expected: int) -> None:
    assert context_length(EngineConfig(max_model_len=given), SPEC, folder) == expected


def test_a_length_beyond_the_folders_is_refused_as_in_vllm() -> None:
    """It was told to clients, and never held."""
    with pytest.raises(ConfigError, match=r"max_model_len=256 exceeds the 128 tokens .*max_seq_length"):
        context_length(EngineConfig(max_model_len=256), SPEC, 128)
    with pytest.raises(ConfigError, match="max_model_len=600 exceeds the model's 512 positions"):
        context_length(EngineConfig(max_model_len=600), SPEC, 128)
