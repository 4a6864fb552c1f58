"""What a family refuses of a config, transformers' code may compute: the refusal says so where it does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from family_checkpoints import write_checkpoint
from transformers import AutoModelForCausalLM

from turnout import LLM, SamplingParams
from turnout.core.errors import ModelError
from turnout.core.registry.registry import Registry
from turnout.models.hub.resolve import resolve_model
from turnout.runner.checkpoint import open_checkpoint
from turnout.scripts.make_model import copy_tokenizer

PROMPT = [5, 9, 140, 33, 7, 7, 21, 98, 11, 64]
ADVICE = "--model-impl transformers runs it"
HALF = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}
REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "use_sliding_window": ("qwen2-moe", {"use_sliding_window": True, "sliding_window": 6}),
    "use_sliding_window = True": ("qwen3-moe", {"use_sliding_window": True, "sliding_window": 6}),
    "hidden_act": ("llama", {"hidden_act": "gelu"}),
    "hidden_activation": ("gemma2", {"hidden_activation": "relu"}),
    "activation_function": ("gpt2", {"activation_function": "relu"}),
    "scale_attn_by_inverse_layer_idx": ("gpt2", {"scale_attn_by_inverse_layer_idx": True}),
    "partial_rotary_factor": ("llama", HALF),
    "mlp_bias": ("deepseek-v2", {"mlp_bias": True}),
}
"""By what the refusal names."""


@pytest.mark.parametrize("named", REFUSED)
def test_what_is_advised_computes_what_transformers_does(named: str, tmp_path: Path) -> None:
    """It was advised to attend to the whole context, which gives other tokens, or nothing was."""
    name, changes = REFUSED[named]
    write_checkpoint(name, tmp_path, **changes)
    copy_tokenizer(resolve_model("turnout-tiny"), tmp_path)
    with pytest.raises(ModelError, match=rf"{named}.*{ADVICE}"):
        open_checkpoint(Registry.load(), str(tmp_path))
    llm = LLM(str(tmp_path), model_impl="transformers", max_model_len=128, kv_memory=2**22, dtype="float32")
    params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
    tokens = list(llm.generate([PROMPT], params, progress=False)[0].outputs[0].token_ids)
    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    with torch.inference_mode():
        logits = model(torch.tensor([PROMPT + tokens[:-1]])).logits[0, len(PROMPT) - 1 :]
    assert logits.argmax(-1).tolist() == tokens


def test_nothing_is_advised_that_does_not_help(tmp_path: Path) -> None:
    write_checkpoint("llama", tmp_path)
    with pytest.raises(ModelError, match="rope_type = 'odd' is not supported") as refusal:
        open_checkpoint(Registry.load(), str(tmp_path), overrides='{"rope_parameters": {"rope_type": "odd"}}')
    assert "--model-impl" not in str(refusal.value)


def test_a_type_with_names_of_its_own_is_read_by_transformers_rules(tmp_path: Path) -> None:
    """EXAONE 3.5, which transformers saves as a Llama, was refused for its names of tensors."""
    write_checkpoint("exaone", tmp_path)
    copy_tokenizer(resolve_model("turnout-tiny"), tmp_path)
    assert LLM(str(tmp_path), kv_memory=2**22, dtype="float32").ready
