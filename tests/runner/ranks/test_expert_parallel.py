"""Engines whose ranks have experts whole give the tokens of one process."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from family_checkpoints import write_checkpoint
from ranked_engines import KV_BYTES, answers, engine, kill_the_follower, prompts

from turnout import SamplingParams
from turnout.core.types.structured_outputs import StructuredOutputs
from turnout.text.tokenizer import load_tokenizer

EXPERTS = {"enable_expert_parallel": True}
TOKENS = 1400
"""Of the random model's KV memory: too little for all requests, of a model of twice as many layers."""


@pytest.fixture(scope="module")
def mixture(model, tmp_path_factory) -> Path:
    """A random mixture of experts, with the small model's tokenizer. No prompt here has two experts so
    close that rounding decides between them."""
    folder = tmp_path_factory.mktemp("mixture")
    for file in model.iterdir():
        if "token" in file.name:
            (folder / file.name).write_bytes(file.read_bytes())
    write_checkpoint("qwen3-moe", folder)
    return folder


def test_two_processes_give_the_tokens_of_one(mixture):
    """Sampling, choices, log-probabilities and beams, preempted for lack of memory, with prefix hits."""
    expected = answers(engine(mixture, 1, TOKENS))
    together = engine(mixture, 2, TOKENS, **EXPERTS)
    assert answers(together) == expected
    assert together.engine.stats().preemptions > 0, "the pool is too small for all of them"
    assert "expert parallel: each has some experts whole" in "\n".join(together.ready.summary)
    assert answers(together) == expected, "and again, from cached prefixes"
    kill_the_follower(together)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"swap_memory": 1800 * KV_BYTES, "preemption": "swap"},
        {"preemption": "auto", "swap_memory": 1800 * KV_BYTES},
        {"spec_ngram": True},
        {"draft": True},
        {"kv": "contiguous"},
        {"scheduler": "mlfq"},
        {"cpu_kernels": "torch"},
        {"quantization": "int8"},
        {"pipeline_parallel_size": 2},
        {"tensor_parallel_size": 4},
    ],
    ids=lambda options: next(iter(options)),
)
def test_whatever_else_is_on_tokens_stay(options, mixture):
    alike = {name: value for name, value in options.items() if name == "quantization"}
    options = dict(options)
    ranks = options.pop("tensor_parallel_size", 2)
    tokens = TOKENS * max(1, ranks // 2)  # the KV heads are two
    if options.pop("draft", False):  # room to draft, always as many tokens
        options, tokens = {"decoding": f"speculative:draft={mixture},k=3,adaptive=false"}, 8 * TOKENS
    expected = answers(engine(mixture, 1, TOKENS, **alike))
    together = engine(mixture, ranks, tokens, **EXPERTS, **options)
    assert answers(together) == expected
    if options.get("preemption") == "swap":
        assert together.engine.stats().swap_outs > 0
    if "spec_ngram" in options or "decoding" in options:
        assert sum(n for name, n in together.engine.stats().counters.items() if "draft" in name) > 0


@pytest.mark.slow
def test_tokens_do_not_depend_on_the_batch(mixture):
    together = engine(mixture, 2, 4 * TOKENS, dtype="bfloat16", **EXPERTS)
    params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
    joint = [each.outputs[0].token_ids for each in together.generate(prompts(), params)]
    assert joint == [together.generate([each], params)[0].outputs[0].token_ids for each in prompts()]


@pytest.mark.slow
def test_a_decoder_with_experts_that_embeds(mixture):
    vectors = [
        np.array(engine(mixture, ranks, 8 * TOKENS, **more).embed(prompts(5)))
        for ranks, more in ((1, {}), (2, EXPERTS))
    ]
    np.testing.assert_allclose(vectors[1], vectors[0], atol=1e-5)


@pytest.mark.slow
def test_structured_output_of_experts(model, tmp_path):
    """With a vocabulary as large as that of the tokenizer, whose tokens a form needs."""
    for file in model.iterdir():
        if "token" in file.name:
            (tmp_path / file.name).write_bytes(file.read_bytes())
    write_checkpoint("qwen3-moe", tmp_path, vocab_size=load_tokenizer(tmp_path).vocab_size, eos_token_id=0)
    params = SamplingParams(
        temperature=0.8, seed=1, max_tokens=40, structured_outputs=StructuredOutputs(regex="[a-f]{8}")
    )
    texts = [
        engine(tmp_path, ranks, 8 * TOKENS, **more).generate("Is it?", params)[0].outputs[0].text
        for ranks, more in ((1, {}), (2, EXPERTS))
    ]
    assert texts[0] == texts[1]
    assert re.fullmatch("[a-f]{8}", texts[0])
