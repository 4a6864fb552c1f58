"""What cannot be served rightly is refused by one line that names the model and the reason."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import transformers
from transformers import CONFIG_MAPPING

from turnout.core.errors import ModelError
from turnout.models.transformers_adapter import TransformersAdapter, reading
from turnout.models.transformers_adapter.building import parse_config
from turnout.models.transformers_adapter.masks import MOST, two_sided_window_of, window_of
from turnout.models.transformers_adapter.small import shrunk

REFUSED = {
    ("mamba", "MambaForCausalLM"): "keeps a recurrent state",
    ("qwen3_next", "Qwen3NextForCausalLM"): "keeps a recurrent state",
    ("bart", "BartForConditionalGeneration"): "has an encoder and a decoder",
    ("bert", "BertLMHeadModel"): "neither causal nor a sliding window",
    ("gpt_neo", "GPTNeoForCausalLM"): "attention code of its own",
    ("llama4_text", "Llama4ForCausalLM"): "attends within chunks .* choose a model with",
    ("deepseek_v32", "DeepseekV32ForCausalLM"): "sparse attention",
    ("bloom", "BloomForCausalLM"): "do not use the attention interface .* .turnout plugins new",
    ("gemma3", "Gemma3ForConditionalGeneration"): "reads images or sound",
    ("diffllama", "DiffLlamaForCausalLM"): "attends twice in layer 0|attention code of its own",
    ("llama", "LlamaForSequenceClassification"): "is not a causal language model",
}


def config_of(kind: str, architecture: str, **sizes: object) -> dict[str, Any]:
    if kind not in CONFIG_MAPPING:
        pytest.skip(f"transformers {transformers.__version__} has no {kind}")
    config = CONFIG_MAPPING[kind]()
    if kind != "gpt_neo":  # whose class wants two lists that fit each other in some versions
        config = shrunk(config, **sizes)
    return {**config.to_dict(), "architectures": [architecture]}


@pytest.mark.parametrize(("model", "reason"), REFUSED.items(), ids=lambda each: each[0])
def test_it_is_refused_with_the_reason(model: tuple[str, str], reason: str) -> None:
    with pytest.raises(ModelError, match=reason) as refusal:
        TransformersAdapter().spec(config_of(*model))
    assert "\n" not in str(refusal.value)


def test_a_class_with_recurrent_layers_is_served_where_a_model_has_none() -> None:
    """Granite 4 in its smallest sizes."""
    if needed := reading.needed_version("GraniteMoeHybridForCausalLM"):
        pytest.skip(f"it is served from transformers {needed} on")
    config = CONFIG_MAPPING["granitemoehybrid"](layer_types=["attention"] * 3, num_hidden_layers=3)
    described = {**shrunk(config).to_dict(), "architectures": ["GraniteMoeHybridForCausalLM"]}
    described["time_step_limit"] = [0.0, {"__float__": "Infinity"}]  # as transformers writes it
    assert TransformersAdapter().spec(described).layers == 3
    described["layer_types"] = ["attention", "mamba", "attention"]
    with pytest.raises(ModelError, match="recurrent state"):
        TransformersAdapter().spec(described)


def test_a_class_that_transformers_has_under_another_name_is_told_by_the_model_type() -> None:
    """As EXAONE's, which had code of its own; what transformers has under that name is not taken so."""
    config = config_of("llama", "OurLlamaForCausalLM")
    assert TransformersAdapter().spec(config).architecture == "OurLlamaForCausalLM"
    with pytest.raises(ModelError, match="which has LlamaForCausalLM for model_type = 'llama'"):
        TransformersAdapter().spec({**config, "architectures": ["MistralForCausalLM"]})


def test_more_heads_of_keys_than_of_queries_are_refused() -> None:
    """Kernels, which divide by their ratio, would end the process."""
    config = config_of("llama", "LlamaForCausalLM", num_key_value_heads=8)
    with pytest.raises(ModelError, match=r"4 heads of queries in layer 0, .* a multiple of its 8"):
        TransformersAdapter().spec(config)


def test_a_model_that_transformers_does_not_know_is_refused() -> None:
    with pytest.raises(ModelError, match="pip install -U transformers"):
        TransformersAdapter().spec({"model_type": "not-yet", "architectures": ["NotYetForCausalLM"]})


def test_what_needs_a_newer_transformers_names_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of("opt", "OPTForCausalLM")
    monkeypatch.setattr(reading, "transformers", SimpleNamespace(__version__="5.1.3"))
    with pytest.raises(
        ModelError, match=r"OPTForCausalLM is served from transformers 5\.2 on, and 5\.1\.3 is"
    ):
        TransformersAdapter().spec(config)
    for version in ("5.2.0", "5.10.0.dev0", "6.0.0"):
        monkeypatch.setattr(reading, "transformers", SimpleNamespace(__version__=version))
        assert reading.needed_version("OPTForCausalLM") is None


def test_a_config_that_names_no_padding_token_is_read() -> None:
    config = config_of("phi", "PhiForCausalLM")
    assert (
        parse_config({key: value for key, value in config.items() if "token" not in key}).pad_token_id is None
    )


def test_a_context_ends_where_rotations_would_depend_on_the_batch() -> None:
    config = config_of("llama", "LlamaForCausalLM")
    config["rope_parameters"] = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}
    config["rope_parameters"]["original_max_position_embeddings"] = 64
    assert TransformersAdapter().spec(config).max_positions == 64


def test_masks_are_read_as_windows_or_refused() -> None:
    assert window_of(lambda b, h, q, k: k <= q, 100) is None
    assert window_of(lambda b, h, q, k: (k <= q) & (k > q - 7), 100) == 7
    # One that begins beyond the positions that are looked at was taken for none.
    assert window_of(lambda b, h, q, k: (k <= q) & (k > q - MOST), MOST + 9) == MOST
    assert window_of(lambda b, h, q, k: (k <= q) & (k > q - MOST), MOST) is None
    assert two_sided_window_of(lambda b, h, q, k: (k - q).abs() < MOST + 1, MOST + 9) == MOST + 1
    with pytest.raises(ValueError, match="neither causal nor a sliding window"):
        window_of(lambda b, h, q, k: (k <= q) & (k // 8 == q // 8), 100)
    with pytest.raises(ValueError, match="neither causal nor a sliding window"):
        window_of(lambda b, h, q, k: k < 1000, 100)
