"""Models that run by transformers' modules give the tokens that transformers gives, from the same folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from turnout import LLM, SamplingParams

PROMPTS = ([3, 141, 59, 26, 53, 58, 97, 93, 23, 84], [200, 7, 7, 150], list(range(20, 60)))


@torch.inference_mode()
def are_greedy(model: Any, prompt: list[int], tokens: list[int]) -> bool:
    """Is each the most likely after those before it, up to rounding?"""
    logits = model(torch.tensor([prompt + tokens[:-1]])).logits[0, len(prompt) - 1 :]
    chosen = logits.gather(1, torch.tensor(tokens)[:, None])[:, 0]
    return bool((logits.max(-1).values - chosen < 1e-4).all())


@pytest.mark.parametrize("kind", ["phi", "gpt2", "gemma2", "gpt_oss", "qwen3_moe"])
def test_greedy_tokens_are_those_of_transformers(kind: str, small_model: Callable[..., Any]) -> None:
    folder, model = small_model(kind)
    options = {"model_impl": "transformers", "max_model_len": 128, "max_num_batched_tokens": 16}
    llm = LLM(str(folder), dtype="float32", **options)
    params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
    for prompt, out in zip(PROMPTS, llm.generate([*PROMPTS], params), strict=True):
        assert are_greedy(model, prompt, list(out.outputs[0].token_ids))
