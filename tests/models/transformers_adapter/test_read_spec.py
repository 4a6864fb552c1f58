"""What the adapter reads of a config is what the rest of the engine plans by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transformers import CONFIG_MAPPING

from turnout import LLM, SamplingParams
from turnout.models.transformers_adapter.reading import read_spec
from turnout.models.transformers_adapter.small import shrunk


def test_of_layers_of_several_widths_the_widest_counts() -> None:
    small = shrunk(CONFIG_MAPPING["gemma3n_text"]()).to_dict()
    widths = [32 * (layer + 1) for layer in range(small["num_hidden_layers"])]
    config = {**small, "intermediate_size": widths, "architectures": ["Gemma3nForCausalLM"]}
    assert read_spec(config).intermediate_size == max(widths)


def test_a_model_with_a_width_for_each_layer_starts_by_default(small_model: Callable[..., Any]) -> None:
    """Kernels are chosen, and memory is planned, by a layer's width."""
    folder, _ = small_model("gemma3n_text")
    llm = LLM(str(folder), dtype="float32", max_model_len=64)
    params = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
    assert len(llm.generate([[5, 6, 7]], params, progress=False)[0].outputs[0].token_ids) == 4
