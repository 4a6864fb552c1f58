"""Engines whose layers several processes divide give the tokens of one, with its very log-probabilities."""

from __future__ import annotations

import numpy as np
import pytest
from ranked_engines import KV_BYTES, answers, engine, kill_the_follower, prompts

from turnout import LLM, SamplingParams
from turnout.core.errors import ConfigError
from turnout.core.types.request import RequestSpec
from turnout.core.types.structured_outputs import StructuredOutputs
from turnout.kernels.choice import native_kernels

STAGES = {"pipeline_parallel_size": 2}


def test_two_stages_give_the_tokens_of_one_process(model):
    """Sampling, choices, log-probabilities and beams, preempted for lack of memory, with prefix hits."""
    alone, together = engine(model), engine(model, **STAGES)
    expected = answers(alone)
    assert answers(together) == expected
    assert together.engine.stats().preemptions > 0, "the pool is too small for all of them"
    assert "pipeline parallel: 2 stages, of which this has 1 layers" in "\n".join(together.ready.summary)
    assert answers(together) == expected, "and again, from cached prefixes"
    assert together.engine.scheduler.kv.snapshot().hits > 0
    kill_the_follower(together)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"swap_memory": 900 * KV_BYTES, "preemption": "swap"},
        {"preemption": "auto", "swap_memory": 900 * KV_BYTES},
        {"spec_ngram": True},
        {"kv": "contiguous"},
        {"scheduler": "srpt"},
        {"scheduler": "mlfq"},
        {"cpu_kernels": "torch"},
        {"max_num_batched_tokens": 16},
        {"draft": True},
        {"tensor_parallel_size": 2},
        {"quantization": "int8"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_whatever_else_is_on_tokens_of_stages_stay(options, model):
    if options.get("draft"):
        options = {"decoding": f"speculative:draft={model},k=3,adaptive=false", "tokens": 4000}
    alike = {name: value for name, value in options.items() if name == "quantization"}
    if "tensor_parallel_size" in options:
        options = {"ranks": 2}
    expected = answers(engine(model, **alike))
    together = engine(model, **options, **STAGES)
    assert answers(together) == expected
    if options.get("preemption") == "swap":
        assert together.engine.stats().swap_outs > 0
    if "spec_ngram" in options or "decoding" in options:
        assert sum(n for name, n in together.engine.stats().counters.items() if "draft" in name) > 0


@pytest.mark.slow
def test_structured_output_over_stages():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    params = SamplingParams(
        temperature=0.8, seed=1, max_tokens=40, structured_outputs=StructuredOutputs(json=schema)
    )
    texts = []
    for stages in (1, 2):
        llm = LLM(pipeline_parallel_size=stages, pipeline_layers="5,3" if stages > 1 else None)
        texts.append([each.outputs[0].text for each in llm.generate(["Give me a number:"] * 6, params)])
    assert texts[0] == texts[1]


@pytest.mark.slow
def test_a_decoder_that_embeds(model):
    """By native kernels: the sums of PyTorch's depend on the batch."""
    try:
        native_kernels()
    except ConfigError as error:
        pytest.skip(str(error))
    vectors = []
    for options in ({}, STAGES):
        llm = engine(model, tokens=4000, cpu_kernels="native", **options)
        vectors.append(np.array(llm.embed(prompts(5))))
    assert (vectors[0] == vectors[1]).all()


@pytest.mark.slow
def test_requests_that_are_given_up_change_no_others(model):
    """Also those whose step is on its way."""
    together, alone = engine(model, tokens=4000, **STAGES), engine(model, tokens=4000)
    params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
    expected = [each.outputs[0].token_ids for each in alone.generate(prompts(), params)]
    found: dict[str, list[int]] = {}
    for number, prompt in enumerate(prompts()):
        together.engine.add(RequestSpec(id=str(number), prompt=prompt, params=params, seed=0))
    steps = 0
    while together.engine.busy:
        for delta in together.engine.step():
            found.setdefault(delta.request_id, []).extend(delta.tokens)
        steps += 1
        if steps % 2 and steps < 12:
            together.engine.abort(str(steps))  # some compute, some wait
    for number, tokens in enumerate(expected):
        if str(number) in found and not (number % 2 and number < 12):
            assert found[str(number)] == tokens
    assert together.engine.stats().kv_free == together.engine.stats().kv_capacity
