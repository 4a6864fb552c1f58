"""Our own model families pass the suite that third parties' do."""

from __future__ import annotations

import pytest

from turnout.models.random.shapes import Shape, config_of
from turnout.testing import ModelFamilySuite

SHAPE = Shape(32, 2, 4, 2, 48, 64, max_positions=128, theta=10_000.0, tied=False)
PLAIN = {name: config_of(SHAPE, name) for name in ("qwen2", "llama")}
WINDOWS = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}
GEMMA = {
    **PLAIN["llama"],
    "architectures": ["Gemma2ForCausalLM"],
    "model_type": "gemma2",
    "head_dim": 8,
    "query_pre_attn_scalar": 16,
    "attn_logit_softcapping": 2.0,
    "sliding_window": 6,
    "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
}
GPT_OSS = {
    **PLAIN["llama"],
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "head_dim": 8,
    "sliding_window": 7,
    "attention_bias": True,
    "num_local_experts": 3,
    "num_experts_per_tok": 2,
}
BERT = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
}
FAMILIES = {
    "qwen2": ("qwen2", PLAIN["qwen2"]),
    "llama": ("llama", PLAIN["llama"]),
    "windows": ("qwen2", {**PLAIN["qwen2"], **WINDOWS}),
    "softcaps": ("gemma2", GEMMA),
    "sinks": ("gpt-oss", GPT_OSS),
    "an encoder": ("bert", BERT),
}


@pytest.mark.parametrize("case", FAMILIES)
class TestModelFamily(ModelFamilySuite):
    refused = ({"hidden_act": "relu"},)

    @pytest.fixture(autouse=True)
    def _choose(self, case: str) -> None:
        self.spec, self.config = FAMILIES[case]  # type: ignore[misc]
        if self.spec not in ("qwen2", "llama"):
            self.refused = ()  # type: ignore[misc]  # they do not read it, or have more
