"""Models that transformers' modules run compute over ranks what they compute on one device."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from ranks_in_threads import logits_of, on_grid, on_ranks
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from turnout.core.errors import ConfigError
from turnout.models.transformers_adapter import TransformersAdapter
from turnout.models.transformers_adapter.reading import needed_version
from turnout.models.transformers_adapter.small import shrunk
from turnout.models.transformers_adapter.trial import spread_weights
from turnout.scripts.transformers_grid import RESULTS, SIZES

ADAPTED = "transformers"
MODELS = {
    kind: each["architecture"]
    for kind, each in json.loads(RESULTS.read_text())["models"].items()
    if "difference" in each
}
SMALL_SENSES = {
    "vision_config": {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1},
    "audio_config": {"hidden_size": 32, "intermediate_size": 32, "num_blocks": 1, "nemo_conv_channels": 8},
}
"""Of phi4_multimodal, whose parts for images and sound have 900M parameters by default."""
QUICK = ("gemma2",)
"""Windows, soft caps, norms behind layers, a tied head."""


@pytest.fixture(autouse=True)
def _nothing_is_remembered(monkeypatch):
    monkeypatch.setattr("turnout.models.transformers_adapter.family.recall", lambda config: None)
    monkeypatch.setattr("turnout.models.transformers_adapter.family.remember", lambda config, found: None)


def saved(kind: str, folder: Path, **sizes: object) -> Path:
    """Saves a small random model of a kind, as transformers does."""
    torch.manual_seed(0)
    sizes = {**SIZES.get(kind, {}), **(SMALL_SENSES if kind == "phi4_multimodal" else {}), **sizes}
    given = {"num_key_value_heads": 2, **sizes}
    config = shrunk(CONFIG_MAPPING[kind](), **given)
    if hasattr(config, "qk_rope_head_dim"):
        config = shrunk(CONFIG_MAPPING[kind](), **sizes)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    spread_weights(model)
    model.save_pretrained(folder)
    return folder


def kinds(quick=QUICK):
    for kind, architecture in MODELS.items():
        if kind in CONFIG_MAPPING and needed_version(architecture) is None:
            yield pytest.param(kind, marks=() if kind in quick else pytest.mark.slow)


@pytest.mark.parametrize("kind", list(kinds()))
def test_ranks_compute_what_one_device_does(kind, tmp_path):
    folder = saved(kind, tmp_path)
    alone = logits_of(folder, impl=ADAPTED)
    try:
        together, other = on_ranks(2, lambda part: logits_of(folder, part, impl=ADAPTED))
    except ConfigError as error:
        if "tensor_parallel_size" not in str(error) or kind in QUICK:
            raise
        pytest.skip(str(error))
    within = 1e-5 * float(alone.abs().max())
    torch.testing.assert_close(together, alone, atol=within, rtol=0)
    assert (together.argmax(-1) == alone.argmax(-1)).all()
    assert other.shape == (0, alone.shape[1])


FEW = ("gemma2", "llama", "qwen3", "olmo2", "phi3", "mixtral", "glm4")
"""Among them: norms of keys, norms over all keys, keys in one tensor with queries."""


@pytest.mark.parametrize(
    "kind", [pytest.param(each, marks=() if each in QUICK else pytest.mark.slow) for each in FEW]
)
def test_neighbouring_ranks_have_the_same_kv_head_where_there_are_fewer(kind, tmp_path):
    folder = saved(kind, tmp_path)
    alone = logits_of(folder, impl=ADAPTED)
    together, *_ = on_ranks(4, lambda part: logits_of(folder, part, impl=ADAPTED))
    torch.testing.assert_close(together, alone, atol=1e-5 * float(alone.abs().max()), rtol=0)
    assert (together.argmax(-1) == alone.argmax(-1)).all()


@pytest.mark.parametrize("kind", list(kinds()))
def test_stages_compute_what_one_device_does(kind, tmp_path):
    folder = saved(kind, tmp_path)
    alone = logits_of(folder, impl=ADAPTED)
    try:
        together, _ = on_grid(1, 2, lambda part, line: logits_of(folder, part, line=line, impl=ADAPTED))
    except ConfigError as error:
        if "pipeline" not in str(error) or kind in QUICK:
            raise
        pytest.skip(str(error))
    assert torch.equal(together, alone)


@pytest.mark.parametrize(
    ("kind", "parts", "stages", "message"),
    [
        ("gpt2", 2, 1, "transformers has no plan by which ranks divide the layers of GPT2LMHeadModel"),
        ("gpt2", 1, 2, "GPT2LMHeadModel, .*: transformers has no plan of its stages"),
        ("gemma2", 5, 1, "its attention heads are 12, which 5 does not divide"),
        ("gemma2", 6, 1, "it has 4 KV heads, and neither number divides the other"),
    ],
)
def test_what_has_no_plan_is_refused_by_name(kind, parts, stages, message):
    heads = {"hidden_size": 96, "num_attention_heads": 12, "num_key_value_heads": 4}
    config = shrunk(CONFIG_MAPPING[kind](), **heads)
    family = TransformersAdapter()
    spec = family.spec({**config.to_dict(), "architectures": [MODELS[kind]]})
    with pytest.raises(ConfigError, match=message):
        family.division(spec, parts, stages)


UNPLANNED = ("opt", "gpt_oss")


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(*each.values, marks=() if each.values[0] in UNPLANNED else pytest.mark.slow)
        for each in kinds()
    ],
)
def test_stages_are_advised_where_they_divide_what_ranks_do_not(kind):
    """They were for OPT, which transformers has a plan of neither for."""
    config = shrunk(CONFIG_MAPPING[kind](), **{**SIZES.get(kind, {}), **SMALL_SENSES})
    family = TransformersAdapter()
    spec = family.spec({**config.to_dict(), "architectures": [MODELS[kind]]})
    try:
        family.division(spec, 2, 1)
    except ConfigError as refusal:
        if "--pipeline-parallel-size" in str(refusal):
            family.division(spec, 1, 2)
            return
        assert "take replicas, or one device" in str(refusal)
