"""The layouts that are read: their ``quantization_config``, a writer, and how far off outputs may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor
from writers import Written, awq, fp8_blocks, fp8_channels, gptq, int8_channels, pack_quantized

from turnout.core.interfaces.quantization import Adopter
from turnout.core.registry.registry import Registry

REGISTRY = Registry.load()
DYNAMIC = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "token", "dynamic": True}


def compressed(activations: object = None, **weights: Any) -> dict[str, Any]:
    weights = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel", **weights}
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, "ignore": ["lm_head"]}


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": False}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": True}
CASES: dict[str, tuple[dict[str, Any], Callable[[Tensor], Written], float]] = {
    "gptq 4 bits": (GPTQ, gptq, 0.01),
    "gptq one group": ({**GPTQ, "group_size": -1}, lambda w: gptq(w, group=-1), 0.01),
    "gptq desc_act": ({**GPTQ, "desc_act": True}, lambda w: gptq(w, desc_act=True), 0.01),
    "gptq v2": ({**GPTQ, "checkpoint_format": "gptq_v2"}, lambda w: gptq(w, version=2), 0.01),
    "gptq 8 bits": ({**GPTQ, "bits": 8}, lambda w: gptq(w, bits=8), 0.01),
    "gptq 8 bits desc_act": ({**GPTQ, "bits": 8}, lambda w: gptq(w, bits=8, desc_act=True), 0.01),
    "awq": (AWQ, awq, 0.01),
    "awq, older names": (
        {"quant_method": "awq", "w_bit": 4, "q_group_size": 64, "version": "GEMM"},
        lambda w: awq(w, group=64),
        0.01,
    ),
    "fp8 blocks": ({"quant_method": "fp8", "weight_block_size": [128, 128]}, fp8_blocks, 1e-5),
    "fp8 layers": ({"quant_method": "fp8"}, fp8_channels, 1e-5),
    "W8A8": (compressed(DYNAMIC), int8_channels, 0.05),
    "W8A16": (compressed(), int8_channels, 0.01),
    "W8A16 packed in groups": (
        compressed(strategy="group", group_size=32),
        lambda w: pack_quantized(w, bits=8),
        0.01,
    ),
    "W8A16 packed": (compressed(), lambda w: pack_quantized(w, bits=8, group=-1), 0.01),
    "W4A16": (compressed(num_bits=4, strategy="group", group_size=32), pack_quantized, 0.01),
    "W4A16 asymmetric": (
        compressed(num_bits=4, strategy="group", group_size=64, symmetric=False),
        lambda w: pack_quantized(w, group=64, symmetric=False),
        0.01,
    ),
    "fp8 channels": (compressed({**DYNAMIC, "type": "float"}, type="float"), fp8_channels, 1e-5),
}


def adopter(config: Mapping[str, Any]) -> Adopter:
    return REGISTRY.create("quantization", config["quant_method"]).adopter(config)
