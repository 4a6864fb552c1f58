"""Models of Llama's shape run by Turnout's decoder, if numbers agree; others by transformers' modules."""

from __future__ import annotations

import pytest
from transformers import CONFIG_MAPPING

from turnout.models.decoder.decoder import Decoder
from turnout.models.meta_model import meta_model
from turnout.models.transformers_adapter import TransformersAdapter
from turnout.models.transformers_adapter.model import AdaptedModel
from turnout.models.transformers_adapter.small import shrunk


@pytest.mark.parametrize(
    ("kind", "architecture", "values", "made"),
    [
        ("qwen2", "Qwen2ForCausalLM", {}, Decoder),
        ("mistral", "MistralForCausalLM", {}, Decoder),
        ("granite", "GraniteForCausalLM", {}, Decoder),
        # The same parameters, but other numbers: only a trial tells.
        ("granite", "GraniteForCausalLM", {"residual_multiplier": 0.5}, AdaptedModel),
        # Queries are scaled from a late position on, far beyond what a short sequence shows.
        ("ministral3", "Ministral3ForCausalLM", {"max_position_embeddings": 65_536}, AdaptedModel),
        # One layer in four does not rotate.
        ("smollm3", "SmolLM3ForCausalLM", {}, AdaptedModel),
    ],
)
def test_numbers_decide_what_runs_it(
    kind: str, architecture: str, values: dict[str, object], made: type
) -> None:
    config = {**shrunk(CONFIG_MAPPING[kind]()).to_dict(), "architectures": [architecture], **values}
    family = TransformersAdapter()
    assert type(meta_model(family, family.spec(config))) is made
