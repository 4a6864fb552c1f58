"""Random models of every architecture that the adapter serves give transformers' greedy tokens.

A few run by default; all of them, and more shapes, with ``-m slow``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import CONFIG_MAPPING

from turnout import LLM, SamplingParams
from turnout.models.transformers_adapter import check
from turnout.models.transformers_adapter.reading import needed_version
from turnout.scripts.transformers_grid import RESULTS, SIZES

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
"""Some modules of transformers 5.0 are scripted as they are imported."""
TOKENS = 64
SHARED = list(range(40, 60))
"""More than a block of the KV memory: what all prompts begin with."""
PROMPTS = [SHARED + [(7 * i + 11 * j) % 290 + 3 for j in range(4 + i)] for i in range(16)]
TIE = 1e-4
"""A logit that is less by this part of the largest is as good as the largest."""

NATIVE = {"cpu_kernels": "native"}
"""So small models are often faster by PyTorch's operators, and then run by these."""
WAYS: Mapping[str, Mapping[str, Any]] = {
    "paged": {"max_num_batched_tokens": 4096, **NATIVE},
    "contiguous": {"kv": "contiguous", "cpu_kernels": "torch"},
    "chunks": {"max_num_batched_tokens": 16, **NATIVE},
    "recompute": {"preemption": "recompute"},
    "swap": {"preemption": "swap", "swap_memory": 2**26, **NATIVE},
    "drafts": {"decoding": "speculative:ngram=true,adaptive=false", **NATIVE},
}
UNTIED = {"tie_word_embeddings": False}
"""A tied head of random weights mostly repeats the last token."""
SHAPES: Mapping[str, Mapping[str, Any]] = {
    "its own": UNTIED,
    "one key head": {**UNTIED, "num_key_value_heads": 1},
    "all key heads": {**UNTIED, "num_key_value_heads": 4},
    "tied": {"tie_word_embeddings": True},
}
TRIED: Mapping[str, Any] = json.loads(RESULTS.read_text())
MODELS = [kind for kind, each in TRIED["models"].items() if "difference" in each]
LATENT = frozenset(["axk1", "deepseek_v2", "deepseek_v3", "glm4_moe_lite", "minicpm3", "sarvam_mla", "youtu"])
NOT_IN_SHAPE = {"one key head": LATENT, "all key heads": frozenset({"mimo_v2_flash"})}
"""What transformers itself cannot compute, because the numbers of heads depend on one another."""
SPLIT = frozenset(["sarvam_moe"])
"""Their checkpoints keep queries, keys and values as one tensor, which start-up refuses by name."""
QUICK = {"gpt2": ("chunks",), "gemma2": ("swap", "drafts")}


def cases() -> Iterator[Any]:
    """Yields each architecture in its own shape served in each way, and in each shape in the hardest way."""
    for kind in MODELS:
        for shape, way in [("its own", way) for way in WAYS] + [(shape, "chunks") for shape in [*SHAPES][1:]]:
            quick = shape == "its own" and way in QUICK.get(kind, ())
            marks = [] if quick else [pytest.mark.slow]
            yield pytest.param(kind, shape, way, marks=marks, id=f"{kind}-{shape}-{way}")


def obstacle(kind: str, shape: str) -> str | None:
    """Says why the installed transformers has no such model, or cannot serve it; None: it can."""
    if kind not in CONFIG_MAPPING:
        return f"transformers {transformers.__version__} has no {kind}"
    if needed := needed_version(TRIED["models"][kind]["architecture"]):
        return f"{kind} is served from transformers {needed} on"
    if kind in SPLIT:
        return f"{kind} is stored in another form than the modules have, which is not read"
    return f"{kind} has no such shape: {shape}" if kind in NOT_IN_SHAPE.get(shape, ()) else None


@torch.inference_mode()
def are_greedy(model: Any, prompt: list[int], tokens: list[int]) -> bool:
    """Is each the most likely after those before it, up to rounding? Then `generate` gives them, too."""
    logits = model(torch.tensor([prompt + tokens[:-1]]), use_cache=False).logits[0, len(prompt) - 1 :]
    chosen = logits.gather(1, torch.tensor(tokens)[:, None])[:, 0]
    return bool((logits.max(-1).values - chosen <= TIE * logits.abs().max()).all())


@cache
def token_bytes(folder: Path) -> int:
    """Returns the bytes of a token's keys and values."""
    return LLM(str(folder), model_impl="transformers", dtype="float32").ready.kv_bytes_per_token


@pytest.fixture(autouse=True)
def _a_model_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "read_and_try", lambda config: tried_once(json.dumps(config)))


@lru_cache(maxsize=2)
def tried_once(config: str, read_and_try: Callable[[Any], Any] = check.read_and_try) -> Any:
    return read_and_try(json.loads(config))


@pytest.mark.parametrize(("kind", "shape", "way"), list(cases()))
def test_greedy_tokens_are_those_of_transformers(
    kind: str, shape: str, way: str, kept_small_model: Callable[..., Any]
) -> None:
    if why := obstacle(kind, shape):
        pytest.skip(why)
    folder, model = kept_small_model(kind, **{**SIZES.get(kind, {}), **SHAPES[shape]})
    preempts = "preemption" in WAYS[way]
    options = {"dtype": "float32", "max_model_len": 128, "max_num_seqs": 16, "kv_memory": 2**26, **WAYS[way]}
    if preempts:  # room for half of what the requests come to
        options["kv_memory"] = sum(len(prompt) + TOKENS for prompt in PROMPTS) // 2 * token_bytes(folder)
    llm = LLM(str(folder), model_impl="transformers", **options)
    params = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True)
    answers = llm.generate(PROMPTS, params, progress=False)
    again = llm.generate(PROMPTS[:2], params, progress=False)
    for prompt, answer in zip([*PROMPTS, *PROMPTS[:2]], [*answers, *again], strict=True):
        tokens = list(answer.outputs[0].token_ids)
        assert are_greedy(model, prompt, tokens)
    different = {token for answer in answers for token in answer.outputs[0].token_ids}
    assert shape == "tied" or len(different) > 20, "a model that repeats itself proves nothing"
    if preempts:
        assert llm.engine.stats().preemptions


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors:UserWarning")
def test_a_mixture_without_shared_experts_has_layers_of_no_width(
    kept_small_model: Callable[..., Any],
) -> None:
    """A flat batch could not be given to them, so that the first step failed."""
    folder, model = kept_small_model("glm4_moe", n_shared_experts=0, **UNTIED)
    llm = LLM(str(folder), model_impl="transformers", dtype="float32", kv_memory=2**24, **NATIVE)
    params = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True)
    answer = llm.generate(PROMPTS[:1], params, progress=False)[0]
    assert are_greedy(model, PROMPTS[0], list(answer.outputs[0].token_ids))
