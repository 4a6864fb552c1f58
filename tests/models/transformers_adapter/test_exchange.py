"""Modules of transformers are exchanged one by one: those whose numbers ours give, and no other."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.models.glm4_moe import modeling_glm4_moe
from transformers.models.olmo2.modeling_olmo2 import Olmo2RMSNorm

from turnout import LLM, SamplingParams
from turnout.models.checkpoints.siblings import JointPart
from turnout.models.decoder.fused import FusedMLP, FusedRMSNorm
from turnout.models.decoder.layers import GatedMLP, RMSNorm
from turnout.models.transformers_adapter.exchange.layers import Exchanges, exchange_layers
from turnout.models.transformers_adapter.exchange.proof import prove
from turnout.plugins.quantization.layers.native import NativeChannelLinear

WIDTH = 16


class MLP(nn.Module):
    """A gated MLP as most models have it, and what may differ in it."""

    def __init__(self, activation: nn.Module, *, swapped: bool = False, limit: float | None = None) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(WIDTH, 32), nn.Linear(WIDTH, 32)
        self.down_proj = nn.Linear(32, WIDTH)
        self.act_fn, self.swapped, self.limit = activation, swapped, limit

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_proj(x), self.up_proj(x)
        if self.swapped:
            gate, up = up, gate
        both = self.act_fn(gate) * up
        return self.down_proj(both if self.limit is None else both.clamp(max=self.limit))


class Norm(Olmo2RMSNorm):
    """A norm with what may differ in it."""

    def __init__(self, *, offset: float = 0.0, centred: bool = False, other_eps: float | None = None) -> None:
        super().__init__(WIDTH)
        self.offset, self.centred, self.other_eps = offset, centred, other_eps
        nn.init.normal_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        x = x - x.mean(-1, keepdim=True) if self.centred else x
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + (self.other_eps or self.variance_epsilon))
        return (self.weight + self.offset) * x * scale


class Block(nn.Module):
    def __init__(self, norm: nn.Module, mlp: nn.Module) -> None:
        super().__init__()
        self.norm, self.mlp = norm, mlp


def exchanged(*blocks: Block, kept: tuple[str, ...] = (), wide: tuple[str, ...] = ()) -> nn.Sequential:
    model = nn.Sequential(*blocks)
    exchange_layers(model, prove(model, kept, wide, {}))
    return model


@pytest.mark.parametrize("activation", [nn.SiLU(), nn.GELU("tanh")], ids=str)
def test_what_gives_the_same_numbers_is_exchanged(activation: nn.Module) -> None:
    block, x = Block(Norm(), MLP(activation)), torch.randn(1, 5, WIDTH)
    names = [name for name, _ in block.named_parameters(prefix="0")]
    expected = block.norm(x), block.mlp(x)
    model = exchanged(block)
    assert [type(model[0].norm), type(model[0].mlp)] == [RMSNorm, GatedMLP]
    assert sorted(name for name, _ in model.named_parameters()) == sorted(names)
    for found, right in zip((model[0].norm(x), model[0].mlp(x)), expected, strict=True):
        torch.testing.assert_close(found, right)


@pytest.mark.parametrize(
    "options",
    [{"offset": 1.0}, {"centred": True}, {"other_eps": 2e-6}],
    ids=lambda options: next(iter(options)),
)
def test_a_norm_of_other_numbers_stays_alone(options: dict[str, Any]) -> None:
    model = exchanged(Block(Norm(**options), MLP(nn.SiLU())))
    assert [type(model[0].norm), type(model[0].mlp)] == [Norm, GatedMLP]


@pytest.mark.parametrize(
    "mlp",
    [MLP(nn.GELU()), MLP(nn.SiLU(), swapped=True), MLP(nn.SiLU(), limit=5.0)],
    ids=["erf", "swapped", "limit"],
)
def test_an_mlp_of_other_numbers_stays_alone(mlp: MLP) -> None:
    model = exchanged(Block(Norm(), mlp))
    assert [type(model[0].norm), type(model[0].mlp)] == [RMSNorm, MLP]


def test_one_layer_that_differs_by_a_number_stays_alone() -> None:
    model = exchanged(*(Block(Norm(offset=offset), MLP(nn.SiLU())) for offset in (0.0, 1.0, 0.0)))
    assert [type(block.norm) for block in model] == [RMSNorm, Norm, RMSNorm]


def test_what_others_read_or_keep_in_float32_stays() -> None:
    model = exchanged(Block(Norm(), MLP(nn.SiLU())), kept=("*.mlp.up_proj",), wide=("0.norm.weight",))
    assert [type(model[0].norm), type(model[0].mlp)] == [Norm, MLP]


def test_start_up_says_what_is_exchanged_and_why_not(
    small_model: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    folder, _ = small_model("glm4_moe")
    with caplog.at_level(logging.INFO):
        LLM(str(folder), model_impl="transformers", kv_memory=2**22)
    (told,) = [each.message for each in caplog.records if "runs by transformers' code" in each.message]
    kept = modeling_glm4_moe.Glm4MoePreTrainedModel._keep_in_fp32_modules_strict or ()  # of later versions
    router = "it stays in float32" if "gate.weight" in kept else "no layer has its form"
    experts = "Glm4MoeExperts" if hasattr(modeling_glm4_moe, "Glm4MoeExperts") else "Glm4MoeNaiveMoe"
    assert told == (
        "Glm4MoeForCausalLM runs by transformers' code, of which Turnout computes linear layers, embeddings, "
        "q_proj+k_proj+v_proj as one (model.layers.*.self_attn), gated MLP with SiLU (model.layers.*.mlp, "
        "model.layers.*.mlp.shared_experts), RMSNorm (model.layers.*.input_layernorm, "
        "model.layers.*.post_attention_layernorm, model.norm); it does not compute "
        f"{experts}: no layer has its form (model.layers.*.mlp.experts), "
        f"Glm4MoeTopkRouter: {router} (model.layers.*.mlp.gate)"
    )


@pytest.mark.parametrize(
    ("quantization", "layers"),
    [("none", {FusedMLP, FusedRMSNorm, JointPart}), ("int8", {FusedMLP, FusedRMSNorm, NativeChannelLinear})],
)
def test_exchanged_layers_are_fused_quantized_and_give_the_same_tokens(
    small_model: Callable[..., Any], quantization: str, layers: set[type], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = small_model("glm4_moe", tie_word_embeddings=False)
    options = {"kv_memory": 2**22, "dtype": "float32", "quantization": quantization}
    prompts = [list(range(3, 40)), list(range(50, 60))]
    params = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)

    def served(kernels: str) -> LLM:
        return LLM(str(folder), model_impl="transformers", cpu_kernels=kernels, **options)

    def tokens(llm: LLM) -> list[tuple[int, ...]]:
        answers = llm.generate(prompts, params, progress=False)
        return [tuple(answer.outputs[0].token_ids) for answer in answers]

    exchanged = served("native")
    kinds = {type(layer) for layer in exchanged.engine.runner.model.modules()}
    assert layers <= kinds
    found = tokens(exchanged)
    monkeypatch.setattr("turnout.models.transformers_adapter.check.find_exchanges", lambda trial: Exchanges())
    assert tokens(served("native")) == found
