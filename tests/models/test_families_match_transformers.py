"""Both families compute what transformers computes, from the same checkpoint folder."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

PROMPT = [3, 141, 59, 26, 53, 58, 97, 93, 23, 84, 62, 64]
KINDS = ("default", "linear", "dynamic", "yarn", "llama3")
ORIGINAL = 32
"""Positions before scaling, of the tiny models: 12 + 64 tokens go well beyond."""

GROUPS = {1: (4, 4), 2: (4, 2), 7: (7, 1)}
BUILT: dict[str, tuple[str, dict[str, bool]]] = {
    "qwen2": ("qwen2", {}),
    "llama": ("llama", {}),
    "biased": ("llama", {"attention_bias": True, "mlp_bias": True}),
}
COMBINED = [
    pytest.param(*each, marks=() if number % 4 == 0 else pytest.mark.slow)
    for number, each in enumerate(product(BUILT, GROUPS, (True, False), KINDS))
]
"""A quarter of them without -m slow: each kind with each way to scale positions, and with each ratio."""


def reference(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


@torch.inference_mode()
def reference_greedy(model: Any, prompt: list[int], count: int = 64) -> list[int]:
    out = model.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=count,
        min_new_tokens=count,
        do_sample=False,
        pad_token_id=0,
    )
    return out[0, len(prompt) :].tolist()


@torch.inference_mode()
def are_greedy(model: Any, prompt: list[int], tokens: list[int]) -> bool:
    """Is each the most likely after those before it? Then a token at a time would give them, too."""
    logits = model(torch.tensor([prompt + tokens[:-1]])).logits[0, len(prompt) - 1 :]
    return logits.argmax(-1).tolist() == tokens


@torch.inference_mode()
def reference_logits(model: Any, tokens: list[int]) -> torch.Tensor:
    return model(torch.tensor([tokens])).logits[0]


@pytest.mark.parametrize(("kind", "ratio", "tied", "rope"), COMBINED)
def test_logits_and_64_greedy_tokens_are_those_of_transformers(
    kind: str, ratio: int, tied: bool, rope: str, tiny_config, checkpoint, serve
) -> None:
    family, biases = BUILT[kind]
    heads, kv_heads = GROUPS[ratio]
    config = tiny_config(
        family,
        rope,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        hidden_size=16 * heads,
        tie_word_embeddings=tied,
        **biases,
    )
    folder = checkpoint(config, seed=ratio)
    theirs, ours = reference(folder), serve(folder)

    torch.testing.assert_close(ours.logits(PROMPT), reference_logits(theirs, PROMPT), atol=1e-5, rtol=1e-5)
    tokens = ours.greedy(PROMPT, 64)
    assert len(set(tokens)) > 3, "a model that repeats itself proves nothing"
    if rope == "dynamic":  # which rotates by how long the sequence is so far
        assert tokens == reference_greedy(theirs, PROMPT)
    else:
        assert are_greedy(theirs, PROMPT, tokens)


def test_head_dim_need_not_divide_the_hidden_size(tiny_config, checkpoint, serve) -> None:
    folder = checkpoint(tiny_config("llama", head_dim=24))
    assert ours_and_theirs_agree(folder, serve)


def test_old_config_layout_gives_the_same_numbers(tiny_config, checkpoint, serve) -> None:
    """rope_theta with rope_scaling of 'type', as most published checkpoints have it."""
    config = tiny_config("qwen2")
    del config["rope_parameters"]
    scaling = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
    folder = checkpoint({**config, "rope_theta": 5000.0, "rope_scaling": scaling})
    assert ours_and_theirs_agree(folder, serve)


@pytest.mark.parametrize(
    "extra",
    [
        {"attention_factor": 0.7},
        {"beta_fast": 8.0, "beta_slow": 2.0},
        {"mscale": 0.8, "mscale_all_dim": 0.5},
        {"truncate": False},
    ],
    ids=lambda extra: next(iter(extra)),
)
def test_every_option_of_yarn(extra: dict[str, Any], tiny_config, checkpoint, serve) -> None:
    config = tiny_config("llama", "yarn")
    config["rope_parameters"] |= extra
    assert ours_and_theirs_agree(checkpoint(config), serve)


@pytest.mark.parametrize("rope", ["linear", "yarn", "llama3"])
@pytest.mark.parametrize("family", ["qwen2", "llama"])
def test_prompts_beyond_the_original_length(family: str, rope: str, tiny_config, checkpoint, serve) -> None:
    folder = checkpoint(tiny_config(family, rope))
    assert ours_and_theirs_agree(folder, serve, prompt=long_prompt())


class TestDynamicRope:
    """The one scaling where transformers' result depends on how a sequence is cut into forward calls.

    Prompts within the original length, and what is generated after them, are in the grid above.
    """

    def test_a_prompt_of_exactly_the_original_length_agrees(self, tiny_config, checkpoint, serve) -> None:
        folder = checkpoint(tiny_config("llama", "dynamic"))
        assert ours_and_theirs_agree(folder, serve, prompt=long_prompt()[:ORIGINAL])

    def test_a_longer_prompt_is_rotated_as_transformers_does_token_by_token(
        self, tiny_config, checkpoint, serve
    ) -> None:
        folder = checkpoint(tiny_config("llama", "dynamic"))
        expected = self.fed_one_by_one(reference(folder), long_prompt())
        torch.testing.assert_close(serve(folder).logits(long_prompt()), expected, atol=1e-5, rtol=1e-5)

    def test_a_longer_prompt_in_one_call_is_where_transformers_differs(
        self, tiny_config, checkpoint, serve
    ) -> None:
        folder = checkpoint(tiny_config("llama", "dynamic"))
        theirs = reference_logits(reference(folder), long_prompt())
        assert not torch.allclose(serve(folder).logits(long_prompt()), theirs, atol=1e-2)

    def test_frequencies_do_not_remember_earlier_sequences(self, tiny_config, checkpoint, serve) -> None:
        """transformers keeps its grown frequencies for a next prompt of exactly the original length."""
        ours = serve(checkpoint(tiny_config("llama", "dynamic")))
        before = ours.logits(long_prompt()[:ORIGINAL])
        ours.logits(long_prompt())
        assert torch.equal(ours.logits(long_prompt()[:ORIGINAL]), before)

    @torch.inference_mode()
    def fed_one_by_one(self, model: Any, tokens: list[int]) -> torch.Tensor:
        cache, rows = None, []
        for token in tokens:
            with warnings.catch_warnings():  # later versions of transformers call it `cache`
                warnings.simplefilter("ignore", FutureWarning)
                out = model(torch.tensor([[token]]), past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            rows.append(out.logits[0])
        return torch.cat(rows)


@pytest.mark.parametrize("rope", KINDS)
def test_results_do_not_depend_on_how_a_prompt_is_cut(rope: str, tiny_config, checkpoint, serve) -> None:
    ours = serve(checkpoint(tiny_config("llama", rope)))
    whole = ours.logits(long_prompt())
    for chunk in (1, 7, 40):
        torch.testing.assert_close(ours.logits(long_prompt(), chunk), whole, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_in_half_precision(dtype: torch.dtype, tiny_config, checkpoint, load) -> None:
    folder = checkpoint(tiny_config("qwen2", "yarn"))
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    module = load(folder, dtype=dtype)

    def attend(layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        assert q.dtype == k.dtype == v.dtype == dtype
        heads = (x.transpose(0, 1)[None] for x in (q, k, v))
        mixed = torch.nn.functional.scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=True)
        return mixed[0].transpose(0, 1)

    with torch.inference_mode():
        ours = module.logits(module(torch.tensor(PROMPT), torch.arange(len(PROMPT)), attend))
    assert ours.dtype == dtype
    torch.testing.assert_close(ours, reference_logits(theirs, PROMPT), atol=5e-2, rtol=5e-2)


def long_prompt() -> list[int]:
    return [(7 * index * index + 3 * index) % 160 for index in range(ORIGINAL + 18)]


def ours_and_theirs_agree(folder: Path, serve: Callable[[Path], Any], prompt: list[int] = PROMPT) -> bool:
    """The same logits for the prompt and the same tokens after it."""
    theirs, ours = reference(folder), serve(folder)
    tokens = reference_greedy(theirs, prompt)
    logits = reference_logits(reference(folder), prompt)  # a fresh one: dynamic scaling leaves traces
    torch.testing.assert_close(ours.logits(prompt), logits, atol=1e-5, rtol=1e-5)
    return len(set(tokens)) > 3 and ours.greedy(prompt, 64) == tokens
